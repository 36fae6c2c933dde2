"""FLatten, Sec. 5 (l. 217); where it is silent, the authors' code ("code"), which they published for the classifiers; and the
recipes of its hosts, to which it refers ("the exact same settings as the corresponding baseline")."""

from . import cosine
from .shared import AT_384, COCO_1X, IMAGENET, LENGTH_3X, SEMANTIC_FPN, UPERNET

# "we use AdamW [25] optimizer to train all our models for 300 epochs with a cosine learning rate decay and 20 epochs of
# linear warm-up. The basic learning rate for a batch size of 1024 is set to 1 x 10^-3, and then linearly scaled w.r.t.
# the batch size. We follow DeiT [39] and apply RandAugment [8], Mixup [57], CutMix [56] and random erasing [59]. In
# addition, a weight decay of 0.05 is used." Code: first and last rates, steps of an iteration over all epochs,
# clipping, drop path, no decay of one-dimensional parameters and of relative positions, but of the keys' positions and
# of PVT's; evaluation on squashed images. Not followed, as the paper differs: the code's ten epochs more (but for
# Swin), its 5 epochs of warm-up (PVT, PVTv2), its decay of 0.1 (CSwin-B).
_IMAGENET = dict(
    IMAGENET,
    clip=None,
    rates=(2e-6, cosine(1e-3, 2e-5, 20 / 300), 2e-5),
    undecayed={"norm", "bias"},
    evaluation=["squash 256x256 bicubic", "crop 224"],
)
_SWIN_IMAGENET = dict(
    _IMAGENET, clip=5.0, rates=(1e-6, cosine(1e-3, 1e-5, 20 / 300), 1e-5), undecayed={"norm", "bias", "table"}
)


def _average(decay: float, batch: int) -> dict[str, tuple[str, float]]:
    """EMA at 1024 images, with the decay that the code has at ``batch`` images."""
    return dict(ema=("ExponentialMovingAverage", float(f"{1 - decay ** (1024 / batch):.3g}")))


# "To be consistent with [10], we also adopt EMA [32] in the training of our FLatten-CSwin models." Code:
# "--model-ema-decay 0.99984" at 8 x 256 (T) and 8 x 128 images (S), "0.99982" at 8 x 64 (B) and 8 x 32 (B at 384
# pixels).
_CSWIN_T = dict(_IMAGENET, **_average(0.99984, 2048))
_CSWIN_S = dict(_IMAGENET, **_average(0.99984, 1024))
_CSWIN_B = dict(_IMAGENET, **_average(0.99982, 512))
# "In terms of larger resolution finetuning, we follow the setting in [24, 10] that finetunes the models for 30 epochs."
# Code: "BASE_LR 2e-5" and "MIN_LR 2e-7" (Swin), "5e-6" and "5e-7" (CSwin) per 512 images, here at 1024; "WEIGHT_DECAY
# 1e-8"; CSwin: 20 epochs and 10 of cool-down.
_AT_384 = {**_SWIN_IMAGENET, **AT_384, "drop_path": 0.5}
# Code: "CROP: False" is Swin-B's only; the others resize to (438, 438) and crop.
_CSWIN_AT_384 = {
    **_AT_384,
    **_average(0.99982, 256),
    **dict(clip=None, lr=1e-5, warmup=0, rates=(1e-5, 1e-5, 1e-6), undecayed={"norm", "bias"}, drop_path=0.7),
    "evaluation": ["squash 438x438 bicubic", "crop 384"],
}
# "we use the exact same settings as the corresponding baseline model", "on 1x and 3x schedules". Swin's configs:
# "mstrain_480-800", 12 or 36 epochs, "drop_path_rate=0.1" in the 1x and 0.2 in the 3x and cascade ones; "norm" and
# relative positions do not decay, the batch norms of the heads ("bn") do.
_SWIN_COCO = dict(COCO_1X, drop_path=0.1)
_SWIN_COCO_3X = {**COCO_1X, **LENGTH_3X, "drop_path": 0.2}
# PVT's configs: one scale; all parameters decay.
_PVT_COCO = {
    **_SWIN_COCO,
    "weight_decay": 1e-4,
    "lr": 2e-4,
    "rates": (2e-7, 2e-4, 2e-6),
    "undecayed": set(),
    "train_scales": {(1333, 800)},
}
_UPERNET = dict(UPERNET, drop_path=0.3)
_SEMANTIC_FPN = dict(SEMANTIC_FPN, decay="PolyLR", power=0.9)

RECIPES = {
    "classifier_flatten_swin_t_300e_imagenet.py": dict(_SWIN_IMAGENET, drop_path=0.2),
    "classifier_flatten_swin_s_300e_imagenet.py": dict(_SWIN_IMAGENET, drop_path=0.3),
    "classifier_flatten_swin_b_300e_imagenet.py": dict(_SWIN_IMAGENET, drop_path=0.5),
    "classifier_flatten_swin_b_30e_imagenet384.py": _AT_384,
    "classifier_flatten_pvt_t_300e_imagenet.py": dict(_IMAGENET, drop_path=0.1),
    "classifier_flatten_pvt_s_300e_imagenet.py": dict(_IMAGENET, drop_path=0.1),
    "classifier_flatten_pvt_m_300e_imagenet.py": dict(_IMAGENET, clip=1.0, drop_path=0.3),
    "classifier_flatten_pvt_l_300e_imagenet.py": dict(_IMAGENET, clip=1.0, drop_path=0.3),
    "classifier_flatten_pvtv2_b0_300e_imagenet.py": dict(_IMAGENET, drop_path=0.1),
    "classifier_flatten_pvtv2_b1_300e_imagenet.py": dict(_IMAGENET, drop_path=0.1),
    "classifier_flatten_pvtv2_b2_300e_imagenet.py": dict(_IMAGENET, drop_path=0.1),
    "classifier_flatten_pvtv2_b3_300e_imagenet.py": dict(_IMAGENET, clip=1.0, drop_path=0.3),
    "classifier_flatten_pvtv2_b4_300e_imagenet.py": dict(_IMAGENET, clip=1.0, drop_path=0.3),
    "classifier_flatten_cswin_t_300e_imagenet.py": dict(_CSWIN_T, drop_path=0.2),
    "classifier_flatten_cswin_s_300e_imagenet.py": dict(_CSWIN_S, drop_path=0.4),
    "classifier_flatten_cswin_b_300e_imagenet.py": dict(_CSWIN_B, drop_path=0.5),
    "classifier_flatten_cswin_b_30e_imagenet384.py": _CSWIN_AT_384,
    "classifier_flatten_deit_t_300e_imagenet.py": dict(  # DeiT spares its positions and its token, and repeats images
        _IMAGENET, drop_path=0.1, undecayed={"norm", "bias", "position", "token"}, sampler="RepeatAugSampler"
    ),
    "mask_rcnn_flatten_pvt_t_1x_coco.py": _PVT_COCO,
    "mask_rcnn_flatten_swin_t_1x_coco.py": _SWIN_COCO,
    "mask_rcnn_flatten_swin_t_3x_coco.py": _SWIN_COCO_3X,
    "cascade_mask_rcnn_flatten_swin_t_3x_coco.py": _SWIN_COCO_3X,
    "cascade_mask_rcnn_flatten_swin_s_3x_coco.py": _SWIN_COCO_3X,
    "upernet_flatten_swin_t_160k_ade20k.py": _UPERNET,
    "upernet_flatten_swin_s_160k_ade20k.py": _UPERNET,
    "semantic_fpn_flatten_pvt_t_80k_ade20k.py": _SEMANTIC_FPN,
}
