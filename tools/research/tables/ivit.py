"""Kang et al., "Interactive Multi-Head Self-Attention with Linear Complexity".

The twelve FLOPs values of interactive attention (Tables 2 to 5) follow exactly from the operator as the equations have it,
4 N L C + 4 N L h² + 4 N C² multiply-accumulates per layer. Its parameter counts do not: the paper has 28 to 100 k more per
layer, which do no multiply-accumulates and do not depend on N. They could not be identified and are not imitated, so the
parameter columns are reported and not judged. The surplus of the dense predictors is another one, and they
have a few G more. Parameters of UperNet include the auxiliary head, its FLOPs do not.
Accuracies are not reproduced here: they need the training runs.
"""

from typing import Any

from research.paper_tables import Cell, Row, macs, params

TITLE = "iViT: parameters and FLOPs"

ABSENT = [
    ("Fig. 3", "FLOPs over resolution: Table 4 has three of its resolutions"),
    ("Figs. 5 to 7", "attention and features of trained models: no trained weights were published"),
    ("Table 5, other columns", "throughput and accuracies: they need the authors' GPUs and the full trainings"),
    ("accuracies of Tables 2 to 8", "they need the full trainings"),
]

_SURPLUS = "the paper's surplus of unknown origin; see above"

_FACTORS = "printed without the four projections, 4 N C² per layer: 1.387 G"


def _surplus(paper: str, reading: float) -> Cell:
    return params(paper, reading, judged=False, note=_SURPLUS)


def _ivit(arch: str, channels: int) -> dict[str, Any]:
    return dict(
        type="mmpretrain.ImageClassifier",
        backbone=dict(type="mmlisa.iViT", arch=arch, out_indices=[-1], output_norm=False),
        neck=dict(type="mmpretrain.GlobalAveragePooling"),
        head=dict(
            type="mmlisa.MlpClsHead", num_classes=1000, in_channels=channels, pre_norm=True, activation="SquaredReLU"
        ),
    )


def _vit(arch: str, image_size: int = 224, attention: dict[str, Any] | None = None) -> dict[str, Any]:
    return dict(
        type="mmpretrain.ImageClassifier",
        backbone=dict(type="mmlisa.InteractiveViT", arch=arch, image_size=image_size, attention=attention),
        neck=dict(type="mmpretrain.GlobalAveragePooling"),
        head=dict(
            type="mmpretrain.LinearClsHead", num_classes=1000, in_channels=192 if arch.startswith("tiny") else 384
        ),
    )


_SOFTMAX = dict(type="SoftmaxAttention", qkv_bias=True)

ROWS = [
    *(
        Row(table, f"ViT-{label}, softmax", _vit(arch, attention=_SOFTMAX), (3, 224, 224), (params(p), f))
        for table, label, arch, p, f in (
            (
                "Table 2",
                "T/16",
                "tiny-16",
                "5.7 M",
                macs("1.3 G", explained=True, note="DeiT's number, with a class token: 1.254 G"),
            ),
            ("Table 2", "S/16", "small-16", "22.0 M", macs("4.6 G")),
            ("Table 3", "T/8", "tiny-8", "5.7 M", macs("7.0 G")),
        )
    ),
    *(
        Row(table, f"ViT-{label}, iMHSA", _vit(arch), (3, 224, 224), (_surplus(p, reading), macs(f, f_reading)))
        for table, label, arch, p, reading, f, f_reading in (
            ("Table 2", "T/16", "tiny-16", "6.1 M", 5.72, "1.2 G", 1.191),
            ("Table 2", "S/16", "small-16", "23.2 M", 22.05, "4.5 G", 4.473),
            ("Table 3", "T/8", "tiny-8", "6.1 M", 5.72, "4.7 G", 4.675),
        )
    ),
    *(
        Row("Table 4", f"ViT-{label}/16, iMHSA, {n}x{n}", _vit(arch, n), (3, n, n), (macs(f, reading),))
        for label, arch, n, f, reading in (
            ("T", "tiny-16", 448, "4.8 G", 4.762),
            ("T", "tiny-16", 672, "10.7 G", 10.714),
            ("T", "tiny-16", 896, "19.0 G", 19.046),
            ("S", "small-16", 448, "17.9 G", 17.890),
            ("S", "small-16", 672, "40.3 G", 40.253),
            ("S", "small-16", 896, "71.6 G", 71.560),
        )
    ),
    *(
        Row(
            "Table 4",
            f"ViT-{label}/16, softmax, {n}x{n}",
            _vit(arch, n, attention=_SOFTMAX),
            (3, n, n),
            (macs(f, reading),),
        )
        for label, arch, n, f, reading in (
            ("T", "tiny-16", 448, "7.1 G", 7.11),
            ("T", "tiny-16", 672, "24.5 G", 23.96),
            ("T", "tiny-16", 896, "62.4 G", 62.41),
            ("S", "small-16", 448, "22.5 G", 22.54),
            ("S", "small-16", 672, "67.6 G", 66.65),
            ("S", "small-16", 896, "158.1 G", 157.48),
        )
    ),
    *(
        Row(
            "Table 8",
            f"ViT-T/8, {label}",
            _vit("tiny-8", attention=attention),
            (3, 224, 224),
            (macs(f, judged=False, note=_FACTORS),),
        )
        for label, attention, f in (
            ("decomposition and interaction", None, "3.3 G"),
            ("decomposition alone", dict(mix_before=False, mix_after=False), "3.3 G"),
            ("interaction alone", dict(landmarks=None), "5.8 G"),
        )
    ),
    *(
        Row("Table 5", label, _ivit(arch, channels), (3, 224, 224), (_surplus(p, reading), macs(f, f_reading)))
        for label, arch, channels, p, reading, f, f_reading in (
            ("iViT-T", "tiny", 512, "27.5 M", 26.35, "4.0 G", 4.05),
            ("iViT-S", "small", 512, "41.1 M", 39.31, "7.8 G", 7.83),
            ("iViT-B", "base", 576, "58.3 M", 56.22, "13.1 G", 13.09),
        )
    ),
    *(
        Row(
            "Table 6 (Mask R-CNN)",
            f"iViT-{label}",
            f"mask_rcnn_ivit_{label.lower()}_3x_coco.py",
            (3, 800, 1280),
            (_surplus(p, reading), macs(f, f_reading)),
        )
        for label, p, reading, f, f_reading in (
            ("T", "46 M", 43.4, "257 G", 252.9),
            ("S", "60 M", 56.4, "332 G", 330.5),
            ("B", "77 M", 72.8, "442 G", 439.0),
        )
    ),
    *(
        Row(
            "Table 7 (UperNet)",
            f"iViT-{label}",
            f"upernet_ivit_{label.lower()}_160k_ade20k.py",
            (3, 512, 2048),
            (_surplus(p, reading), macs(f, f_reading)),
        )
        for label, p, reading, f, f_reading in (
            ("T", "56 M", 53.7, "940 G", 927),
            ("S", "74 M", 66.7, "1029 G", 1006),
            ("B", "88 M", 83.7, "1142 G", 1118),
        )
    ),
]
