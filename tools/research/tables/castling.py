"""You et al., "Castling-ViT: Compressing Self-Attention via Switching Towards Linear-Angular Attention at Vision Transformer
Inference".

The detection tables count all parameters, and as MACs also biases, 2 per normed and 1 per activated element (`all
layers`); the rows of Castling-ViT† come out right with the auxiliary branch counted, though inference drops it, so they
stand here both ways. Table 2 counts the weights of convolutions and linear layers only (`weights`). Accuracies are not
reproduced here: they need the training runs.
"""

from typing import Any

from research.paper_tables import Row, macs, params

TITLE = "Castling-ViT: parameters and MACs"

ABSENT = [
    (
        "Tables 1 and 11",
        "accuracies of token and feature pooling, pre-Q, post-Q and residual Q: they need ImageNet trainings",
    ),
    (
        "Appendix B",
        "LeViT-256, and DeiT-T with depthwise convolution and sparse attention: accuracies need ImageNet trainings",
    ),
    ("Tables 8 and 10", "throughput, memory and latency on the authors' GPUs"),
    ("Figs. 3 and 7", "accuracy against MACs, and attention of trained models: no trained weights were published"),
    ("accuracies of Tables 2 to 7", "they need the full trainings"),
]

_AUX_COUNTED = "the paper counts the auxiliary branch"
_CASTLED = "what inference computes, without the auxiliary branch"
_STALE = "looks like a stale or copied number: the design of the other rows does not give it"

_DECODER = "mmseg's decoder of Mask2Former; the paper does not describe its own"


def _classifier(backbone: str, channels: int, arch: str, *, token: bool = False) -> dict[str, Any]:
    options = dict(out_type="cls_token") if token else dict(out_indices=(-1,))
    neck = {} if token else dict(neck=dict(type="mmpretrain.GlobalAveragePooling"))
    return dict(
        type="mmpretrain.ImageClassifier",
        backbone=dict(type=f"mmlisa.{backbone}", arch=arch, **options),
        head=dict(type="mmpretrain.LinearClsHead", num_classes=1000, in_channels=channels),
        **neck,
    )


def _classification() -> list[Row]:
    rows = []
    for label, model, (p, p_read), (m, m_read), stale in (
        ("Castling-LeViT-128", _classifier("CastlingLeViT", 384, "128"), ("10.5 M", 10.480), ("0.49 G", 0.494), ""),
        ("Castling-LeViT-192", _classifier("CastlingLeViT", 384, "192"), ("12.7 M", 12.692), ("0.82 G", 0.817), ""),
        ("Castling-LeViT-256", _classifier("CastlingLeViT", 512, "256"), ("22.0 M", 22.032), ("1.40 G", 1.402), ""),
        ("Castling-LeViT-384", _classifier("CastlingLeViT", 768, "384"), ("45.8 M", 45.780), ("2.90 G", 2.922), ""),
        (
            "Castling-DeiT-T",
            _classifier("CastlingDeiT", 192, "tiny", token=True),
            ("5.64 M", 5.879),
            ("1.18 G", 1.182),
            _STALE,
        ),
        (
            "Castling-DeiT-B",
            _classifier("CastlingDeiT", 768, "base", token=True),
            ("87.22 M", 87.215),
            ("17.28 G", 17.278),
            "",
        ),
        (
            "Castling-MViTv2-T",
            _classifier("CastlingMViTv2", 768, "tiny"),
            ("24.1 M", 24.274),
            ("4.50 G", 4.567),
            _STALE,
        ),
        (
            "Castling-MViTv2-S",
            _classifier("CastlingMViTv2", 768, "small"),
            ("34.7 M", 35.121),
            ("6.95 G", 6.783),
            _STALE,
        ),
        ("Castling-MViTv2-B", _classifier("CastlingMViTv2", 768, "base"), ("51.9 M", 51.897), ("9.82 G", 9.819), ""),
    ):
        options = dict(convention="weights", note=stale, judged=not stale)
        rows.append(
            Row("Table 2", label, model, (3, 224, 224), (params(p, p_read, **options), macs(m, m_read, **options)))
        )
    return rows


def _esnet(arch: str, width: int, convs: int, *, aux: bool) -> dict[str, Any]:
    channels = {96: [96, 192, 384], 128: [128, 256, 512], 160: [160, 320, 640]}[width]
    attention = dict(type="LinearAngularAttention", pooled=True, aux=aux, aux_in_eval=aux)
    return dict(
        type="mmdet.SingleStageDetector",
        backbone=dict(type="mmlisa.CastlingESNetViT", arch=arch, attention=attention),
        neck=dict(type="mmlisa.CSPPAN", in_channels=channels, out_channels=width),
        bbox_head=dict(type="mmlisa.PicoHead", num_classes=80, in_channels=width, stacked_convs=convs),
    )


def _detection() -> list[Row]:
    rows = []
    for label, model, size, p, p_read, m, m_read, m_castled in (
        ("Castling-ViT-S-320†", ("small", 96, 2), 320, "3.25 M", 3.251, "0.62 G", 0.617, 0.602),
        ("Castling-ViT-S-416†", ("small", 96, 2), 416, "3.25 M", 3.251, "1.06 G", 1.061, 1.017),
        ("Castling-ViT-M-416†", ("medium", 128, 4), 416, "6.01 M", 6.012, "2.00 G", 1.999, 1.941),
        ("Castling-ViT-L-416†", ("large", 160, 4), 416, "9.32 M", 9.316, "3.03 G", 3.028, 2.955),
    ):
        image = (3, size, size)
        cells = (params(p, p_read), macs(m, m_read, convention="all layers", note=_AUX_COUNTED))
        rows.append(Row("Table 3", label, _esnet(*model, aux=True), image, cells))
        cells = (macs(m, m_castled, convention="all layers", judged=False, note=_CASTLED),)
        rows.append(Row("Table 3", f"{label}, castled", _esnet(*model, aux=False), image, cells))
    config = "picodet_castling_lcnet_l_416_coco.py"
    cells = (params("13.10 M", 13.095), macs("5.31 G", 5.309, convention="all layers"))
    return [*rows, Row("Table 3", "Castling-ViT-L-416*", config, (3, 416, 416), cells)]


def _ablation(table: str, size: str, cells: list[tuple[str, str, str, float, str, float]]) -> list[Row]:
    side = int(size[-3:])
    return [
        Row(
            table,
            label,
            f"picodet_{config}_{size}_coco.py",
            (3, side, side),
            (params(p, p_read), macs(m, m_read, convention="all layers")),
        )
        for label, config, p, p_read, m, m_read in cells
    ]


def _segmentation() -> list[Row]:
    """At 640x640 pixels: there the softmax ViT has the MACs of a backbone that the paper prints in brackets."""
    return [
        Row(
            "Table 4",
            f"{label} (backbone's MACs)",
            f"{config}_160k_ade20k.py",
            (3, 640, 640),
            (params("118 M", judged=False, note=_DECODER), cell),
        )
        for label, config, cell in (
            ("ViT-Base", "mask2former_vit_b", macs("182 G", 183.4)),
            (
                "Castling-ViT-Base",
                "mask2former_castling_vit_b",
                macs("147 G", note="7 G of unknown origin"),
            ),
        )
    ]


ROWS: list[Row] = [
    *_classification(),
    *_segmentation(),
    *_detection(),
    *_ablation(
        "Table 6",
        "s_320",
        [
            ("LCNet", "lcnet", "1.10 M", 1.102, "0.48 G", 0.477),
            ("LCNet-ViT", "lcnet_vit", "2.14 M", 2.138, "0.69 G", 0.686),
            ("+ Lin.", "lcnet_vit_lin", "2.14 M", 2.138, "0.62 G", 0.622),
            ("+ Lin. + DW.", "lcnet_vit_lin_dw", "2.14 M", 2.138, "0.62 G", 0.623),
            ("+ Lin. + DW. + SparseAttn.", "castling_lcnet", "2.14 M", 2.138, "0.62 G", 0.623),
        ],
    ),
    *_ablation(
        "Table 7",
        "m_416",
        [
            ("LCNet", "lcnet", "3.32 M", 3.320, "2.15 G", 2.146),
            ("LCNet-ViT", "lcnet_vit", "7.53 M", 7.530, "3.51 G", 3.509),
            ("+ Lin.", "lcnet_vit_lin", "7.53 M", 7.530, "3.15 G", 3.152),
            ("+ Lin. + DW.", "lcnet_vit_lin_dw", "7.53 M", 7.530, "3.15 G", 3.155),
            ("+ Lin. + DW. + SparseAttn.", "castling_lcnet", "7.53 M", 7.530, "3.15 G", 3.155),
        ],
    ),
]
