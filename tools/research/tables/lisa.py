"""Kwon et al., "Lightweight Structure-Aware Attention for Visual Understanding", the journal and the first version.

Tables 4 and 5 of the journal count multiply-accumulates and, of LiSA, only its two contractions over the patterns,
2 D N C per block (`products`). Its other tables and all of the first version also count every FFT as N log2 N per
channel (`products+fft`). Parameters are those of the operators at their 224-pixel grid. Accuracies are not reproduced
here: they need the training runs.
"""

from functools import partial
from typing import Any

from torch import Tensor, nn

from mmlisa.models.attention import build_attention
from mmlisa.models.layers import Block, to_tokens
from research.paper_tables import Row, macs, params

TITLE = "LiSA: parameters and FLOPs"

ABSENT = [
    ("Table 7", "throughput on the authors' GPUs"),
    (
        "Table 12",
        "throughput, training latency and FLOPs per block; `tools/benchmark.py` measures the operators on this machine",
    ),
    ("accuracies of all tables", "they need the full trainings"),
]

_IMAGE = (3, 224, 224)
_FFT = "products+fft"


def _classifier(arch: str | dict[str, Any], channels: int, *, hidden: bool = True, **backbone: Any) -> dict[str, Any]:
    """ImageNet-1K classifier; the isotropic network's and the first version's are plain linear ones."""
    head = "mmlisa.MlpClsHead" if hidden else "mmpretrain.LinearClsHead"
    return dict(
        type="mmpretrain.ImageClassifier",
        backbone=dict(type="mmlisa.LiSANet", arch=arch, out_indices=[-1], **backbone),
        neck=dict(type="mmpretrain.GlobalAveragePooling"),
        head=dict(type=head, num_classes=1000, in_channels=channels),
    )


def _isotropic(attention: dict[str, Any] | None = None, channels: int = 192, **options: Any) -> dict[str, Any]:
    arch = dict(base="isotropic", channels=(channels,))
    return _classifier(arch, channels, hidden=False, attention=attention, **options)


class _BlockOnMap(nn.Module):
    """Table 4's block: C=192, h=12, with a plain MLP."""

    def __init__(self, attention: dict[str, Any], grid: int) -> None:
        super().__init__()
        self.block = Block(192, build_attention(attention, 192, 12, (grid, grid)), mlp_ratio=4)

    def forward(self, x: Tensor) -> Tensor:
        """``x: [B, 192, H, W] -> [B, H W, 192]``."""
        return self.block(to_tokens(x), x.shape[2:])


_OWN_SIZES = "after its own paper: LiSA's leaves the inner sizes open"
_WIDER = "the paper does not say how much wider; this C (with 12 heads) comes nearest to its #params"


def _compared(
    table: str,
    label: str,
    attention: dict[str, Any],
    p: str,
    f: str,
    channels: int = 192,
    *,
    judged: bool,
    note: str = "",
) -> Row:
    cells = (params(p, judged=judged, note=note), macs(f, convention=_FFT, judged=judged, note=note))
    return Row(table, label, _isotropic(attention, channels), _IMAGE, cells)


_SOFTMAX, _SA = "SoftmaxAttention", "StructureAwareAttention"
ROWS = [
    *(
        _compared("Table 3a", label, attention, p, f, channels, judged=judged, note=note)
        for label, attention, p, f, channels, judged, note in (
            ("Self-attention", dict(type=_SOFTMAX), "5.72 M", "1.25 G", 192, True, ""),
            ("Self-attention, RPE", dict(type=_SOFTMAX, rpe="shared"), "5.72 M", "1.25 G", 192, True, ""),
            (
                "Self-attention, RPE, wider (C=204)",
                dict(type=_SOFTMAX, rpe="shared"),
                "6.44 M",
                "1.40 G",
                204,
                False,
                _WIDER,
            ),
            ("Depthwise conv 7x7", dict(type="DepthwiseConv", kernel_size=7), "4.49 M", "0.84 G", 192, True, ""),
            ("GF layer", dict(type="GlobalFilter"), "4.90 M", "0.82 G", 192, True, ""),
            ("GF layer, wider (C=240)", dict(type="GlobalFilter"), "7.37 M", "1.27 G", 240, False, _WIDER),
            ("Lambda convolution", dict(type="LambdaConvolution"), "5.41 M", "2.41 G", 192, False, _OWN_SIZES),
            ("Convolutional attention", dict(type="ConvolutionalAttention"), "5.78 M", "1.26 G", 192, True, ""),
            (
                "Convolutional attention, wider (C=204)",
                dict(type="ConvolutionalAttention"),
                "6.49 M",
                "1.41 G",
                204,
                False,
                _WIDER,
            ),
            ("Inception mixer, wider (C=228)", dict(type="InceptionMixer"), "6.36 M", "1.28 G", 228, False, _WIDER),
            ("RSA", dict(type="RelationalSelfAttention"), "8.23 M", "5.34 G", 192, False, _OWN_SIZES),
            ("LiSA", dict(type="LiSA", num_patterns=16), "6.36 M", "1.21 G", 192, True, ""),
        )
    ),
    *(
        _compared("Table 3b", label, attention, p, f, judged=True)
        for label, attention, p, f in (
            ("Self-attention, h RPEs", dict(type=_SOFTMAX, rpe="head"), "5.81 M", "1.25 G"),
            ("SA, Eq. 9", dict(type=_SA, form="weights"), "5.72 M", "1.25 G"),
            ("SA, Eq. 9, h RPEs", dict(type=_SA, form="weights", per_head=True), "5.81 M", "1.25 G"),
            ("SA, Eq. 10", dict(type=_SA, form="dot"), "5.99 M", "3.92 G"),
            ("SA, Eq. 10, B^a (first version)", dict(type=_SA, form="dot", encoding_bias=True), "5.99 M", "3.92 G"),
            ("SA, Eq. 11", dict(type=_SA, form="hadamard"), "8.09 M", "3.92 G"),
        )
    ),
    *(
        Row(
            "Table 3c",
            f"LiSANet-I, D={d}",
            _isotropic(dict(type="LiSA", num_patterns=d)),
            _IMAGE,
            (params(p), macs(f, reading, convention=_FFT)),
        )
        for d, p, f, reading in (
            (1, "5.76 M", "1.11 G", 1.084),
            (4, "5.88 M", "1.13 G", 1.107),
            (8, "6.04 M", "1.17 G", 1.139),
            (16, "6.36 M", "1.21 G", 1.201),
        )
    ),
    *(
        _compared(
            "Table 3d",
            f"LiSA, {k}x{k}",
            dict(type="LiSA", num_patterns=16, kernel_size=k, padding="zeros"),
            p,
            f,
            judged=True,
        )
        for k, p, f in ((3, "5.75 M", "1.22 G"), (5, "5.80 M", "1.45 G"), (7, "5.88 M", "1.80 G"))
    ),
    *(
        Row("Table 4", f"{label}, {n}x{n}", partial(_BlockOnMap, attention(n), n), (192, n, n), (macs(paper),))
        for label, attention, papers in (
            ("Self-attention", lambda n: dict(type=_SOFTMAX), ("22.7 M", "102.0 M", "584.0 M", "5.2 G", "22.2 G")),
            # Keys and values are downsampled to 14x14.
            (
                "Convolutional attention",
                lambda n: dict(type="ConvolutionalAttention", stride=max(n // 14, 1)),
                ("23.1 M", "104.0 M", "413.0 M", "1.6 G", "3.7 G"),
            ),
            ("LiSA, D=8", lambda n: dict(type="LiSA"), ("21.8 M", "87.3 M", "349.0 M", "1.4 G", "3.1 G")),
        )
        for n, paper in zip((7, 14, 28, 56, 84), papers, strict=True)
    ),
    *(
        Row("Table 5", label, _classifier(arch, channels), _IMAGE, (params(p, p_reading), macs(f, f_reading)))
        for label, arch, channels, p, p_reading, f, f_reading in (
            ("LiSANet-S", "small", 384, "25 M", 24.7, "3.9 G", 3.93),
            ("HyLiSANet-S", "hybrid-small", 384, "24 M", 24.0, "4.5 G", 4.52),
            ("LiSANet-B", "base", 576, "51 M", 50.6, "10.4 G", 10.48),
            ("HyLiSANet-B", "hybrid-base", 576, "50 M", 50.0, "11.7 G", 11.76),
        )
    ),
    *(
        Row("Table 9 (Mask R-CNN)", label, config, (3, 800, 1280), (params(p), macs(f, reading, convention=_FFT)))
        for label, config, p, f, reading in (
            ("LiSANet-S", "mask_rcnn_lisanet_s_1x_coco.py", "43 M", "258 G", 258.3),
            ("HyLiSANet-S", "mask_rcnn_hylisanet_s_1x_coco.py", "42 M", "265 G", 265.8),
        )
    ),
    *(
        Row("Table 10 (Semantic FPN)", label, config, (3, 512, 2048), (params(p), macs(f, reading, convention=_FFT)))
        for label, config, p, f, reading in (
            ("LiSANet-S", "semantic_fpn_lisanet_s_80k_ade20k.py", "27 M", "176 G", 176.0),
            ("HyLiSANet-S", "semantic_fpn_hylisanet_s_80k_ade20k.py", "26 M", "184 G", 183.7),
        )
    ),
    *(
        Row(
            "Table 8 (Kinetics-400, 16 x 1 x 4 views)",
            f"{label}, one view",
            f"classifier_{name}_110e_kinetics400.py",
            (3, 16, 224, 224),
            (macs(f"{total / 4} G", convention=_FFT, note=f"a quarter of the paper's {total} G for four clips"),),
        )
        for label, name, total in (("HyLiSANet-S", "hylisanet_s", 165), ("HyLiSANet-B", "hylisanet_b", 428))
    ),
    *(
        Row(
            "Table 14 (SS-V2, 8 frames)",
            label,
            f"classifier_lisanet_i_{name}60e_something_v2.py",
            (3, 8, 224, 224),
            (params(p, judged=not note, note=note), macs(f, convention=_FFT, judged=not note, note=note)),
        )
        for label, name, p, f, note in (
            ("Self-attention", "softmax_", "5.82 M", "7.36 G", ""),
            ("Self-attention, RPE", "softmax_rpe_", "5.87 M", "7.36 G", ""),
            ("Depthwise conv 3x7x7", "depthwise_", "4.82 M", "3.75 G", ""),
            ("GF layer", "global_filter_", "6.54 M", "3.53 G", ""),
            ("Lambda convolution", "lambda_", "6.34 M", "26.87 G", ""),
            ("RSA", "rsa_", "23.45 M", "72.58 G", _OWN_SIZES),
            ("LiSA", "", "8.37 M", "5.16 G", ""),
        )
    ),
    Row(
        "Table 13",
        "LiSANet-I, 384x384",
        _isotropic(image_size=(384, 384)),
        (3, 384, 384),
        (
            params(
                "7.82 M",
                7.67,
                explained=True,
                note="the weights at 24x24 tokens; the paper counts exactly one patch embedding more, 0.147 M",
            ),
            macs("3.62 G", 3.60, convention=_FFT),
        ),
    ),
    *(
        Row(
            "First version, tables 4 and 8",
            label,
            _classifier(arch, channels, hidden=False),
            _IMAGE,
            (params(p), macs(f, reading, convention=_FFT)),
        )
        for label, arch, channels, p, f, reading in (
            ("LiSANet-H-T", "v1-tiny", 512, "12.7 M", "1.8 G", 1.76),
            ("LiSANet-H-S", "v1-small", 512, "19 M", "2.9 G", 2.88),
            ("LiSANet-H-B", "v1-base", 768, "59 M", "9.6 G", 9.55),
        )
    ),
    Row(
        "First version, table 5 (Mask R-CNN)",
        "LiSANet-H-S",
        "mask_rcnn_lisanet_v1_small_1x_coco.py",
        (3, 800, 1280),
        (params("38 M"), macs("232 G", 232, convention=_FFT)),
    ),
]
