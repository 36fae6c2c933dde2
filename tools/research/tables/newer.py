"""MILA (Han et al., "Demystify Mamba in Vision"), ViT³ (Han et al.) and PolaFormer (Meng et al.).

Where the authors published a model, the readings are counts of that model: exact parameters, and multiply-accumulates of matrix
products and convolutions. Detectors are counted at 800x1280 pixels, segmentors at 512x2048; parameters of UperNet include
the auxiliary head.
"""

from typing import Any

from research.paper_tables import Cell, Row, macs, params

TITLE = "MILA, ViT³ and PolaFormer: parameters and FLOPs"

ABSENT = [
    ("MILA, ablation of the gates and of the block", "it needs the full trainings; its networks are not published"),
    ("ViT³, inner models and inner training", "it needs the full trainings"),
    ("accuracies", "they need the full trainings, or the published weights: docs/published_weights.md"),
]


_PLOT = "the authors print a plot only; it reads lower than their published models count"
_NO_AUXILIARY = "printed without the auxiliary head: 0.78 M (T, S), 1.07 M (B)"


def _classifier(backbone: str, arch: str, channels: int, **options: Any) -> dict[str, Any]:
    return dict(
        type="mmpretrain.ImageClassifier",
        backbone=dict(type=f"mmlisa.{backbone}", arch=arch, out_indices=[-1], **options),
        neck=dict(type="mmpretrain.GlobalAveragePooling"),
        head=dict(type="mmpretrain.LinearClsHead", num_classes=1000, in_channels=channels),
    )


def _pyramid(backbone: str, arch: str, channels: int) -> dict[str, Any]:
    return _classifier(backbone, arch, channels, output_norm=False)


def _classifiers(table: str, *rows: tuple[str, dict[str, Any], Cell, Cell | None]) -> list[Row]:
    return [
        Row(table, label, model, (3, 224, 224), tuple(cell for cell in cells if cell is not None))
        for label, model, *cells in rows
    ]


ROWS = [
    *_classifiers(
        "MILA, ImageNet",
        (
            "MILA-T",
            _pyramid("MILA", "tiny", 512),
            params("25 M", 24.392, explained=True, note="the published model has 24.4 M"),
            macs("4.2 G", 4.13),
        ),
        ("MILA-S", _pyramid("MILA", "small", 512), params("43 M", 43.015), macs("7.3 G")),
        ("MILA-B", _pyramid("MILA", "base", 768), params("96 M", 95.984), macs("16.2 G")),
    ),
    *_classifiers(
        "ViT³, ImageNet",
        ("ViT³-T", _classifier("ViT3", "tiny", 192), params("6 M", 6.149), macs("1.2 G", 1.22)),
        ("ViT³-S", _classifier("ViT3", "small", 384), params("24 M", 23.799), macs("4.8 G")),
        ("ViT³-B", _classifier("ViT3", "base", 768), params("90 M", 90.056), macs("18.0 G")),
        ("H-ViT³-T", _pyramid("HViT3", "tiny", 512), params("29 M", 28.704), macs("4.9 G", 4.90)),
        ("H-ViT³-S", _pyramid("HViT3", "small", 512), params("54 M", 54.362), macs("8.8 G")),
        ("H-ViT³-B", _pyramid("HViT3", "base", 640), params("94 M", 94.369), macs("16.7 G")),
    ),
    *_classifiers(
        "PolaFormer, ImageNet",
        (
            "Swin-T",
            _classifier("FLattenSwin", "pola-tiny", 768),
            params("29.286 M", 29.286),
            macs("4.5 G", 4.66, explained=True, note=_PLOT),
        ),
        ("Swin-S", _classifier("FLattenSwin", "pola-small", 768), params("50.604 M", 50.604), macs("8.7 G")),
        ("Swin-B", _classifier("FLattenSwin", "pola-base", 1024), params("89.138 M", 89.138), macs("15.4 G")),
        (
            "PVT-T",
            _classifier("FLattenPVT", "pola-tiny", 512),
            params("12.925 M", 12.925),
            macs("2.1 G", 2.26, explained=True, note=_PLOT),
        ),
        (
            "PVT-S",
            _classifier("FLattenPVT", "pola-small", 512),
            params("23.157 M", 23.157),
            macs("4.1 G", explained=True, note=_PLOT),
        ),
        ("PVT-M", _classifier("FLattenPVT", "pola-medium", 512), params("39.966 M", 39.966), None),
        ("PVT-L", _classifier("FLattenPVT", "pola-large", 512), params("54.367 M", 54.367), None),
    ),
    *(
        Row("Mask R-CNN", label, f"mask_rcnn_{name}_1x_coco.py", (3, 800, 1280), (params(p), macs(f)))
        for label, name, p, f in (
            ("MILA-T", "mila_t", "44 M", "255 G"),
            ("MILA-S", "mila_s", "63 M", "319 G"),
            ("MILA-B", "mila_b", "115 M", "502 G"),
            ("H-ViT³-T", "h_vit3_t", "48.4 M", "271 G"),
            ("H-ViT³-S", "h_vit3_s", "74.0 M", "349 G"),
            ("H-ViT³-B", "h_vit3_b", "114 M", "510 G"),
        )
    ),
    *(
        Row("UperNet", label, f"upernet_{name}_160k_ade20k.py", (3, 512, 2048), (p, macs(f)))
        for label, name, p, f in (
            ("MILA-B", "mila_b", params("128 M"), "1183 G"),
            ("H-ViT³-T", "h_vit3_t", params("57.9 M", explained=True, note=_NO_AUXILIARY), "946 G"),
            ("H-ViT³-S", "h_vit3_s", params("83.6 M", explained=True, note=_NO_AUXILIARY), "1026 G"),
            ("H-ViT³-B", "h_vit3_b", params("124 M", explained=True, note=_NO_AUXILIARY), "1195 G"),
        )
    ),
]
