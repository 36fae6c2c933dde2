"""Kwon et al., "Lightweight Structure-Aware Attention for Visual Understanding", the journal and the first version.

Tables 4 and 5 of the journal count multiply-accumulates and, of LiSA, only its two contractions over the patterns,
2 D N C per block (`products`). Its other tables and all of the first version also count every FFT as N log2 N per
channel (`products+fft`). Parameters are those of the operators at their 224-pixel grid. Accuracies are not reproduced
here: they need the training runs.
"""

from typing import Any

from mmlisa.analysis.paper_tables import Row, macs, params
from mmlisa.models.attention import LiSA
from mmlisa.models.backbones.lisanet import Block, TokenMixer

TITLE = "LiSA: parameters and FLOPs"

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


def _block(grid: int) -> Block:
    """Table 4's block: C=192, h=12, D=8, with a plain MLP."""
    mixer = TokenMixer(LiSA(192, 12, grid=(grid, grid), num_patterns=8))
    return Block(192, mixer, 4, False, False, 0.0, dict(type="LN"))


ROWS = [
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
        Row("Table 4", f"LiSA block at {n}x{n}", lambda n=n: _block(n), (192, n, n), (macs(paper),))
        for n, paper in ((7, "21.8 M"), (14, "87.3 M"), (28, "349.0 M"), (56, "1.4 G"), (84, "3.1 G"))
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
    Row(
        "Table 13",
        "LiSANet-I, 384x384",
        _isotropic(image_size=384),
        (3, 384, 384),
        (
            params(
                "7.82 M",
                7.67,
                tolerance=None,
                note="the weights at 24x24 tokens; the paper has more by exactly one patch embedding weight, 0.147 M",
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
