"""MILA, ViT³ and PolaFormer: the authors' published code, and the papers' tables for the drop path of each size.

The classifiers' code gives rates per 512 images; here they are for 1024 images, 128 on each of 8 devices.
"""

from . import cosine
from .shared import AT_384, COCO_1X, IMAGENET, LENGTH_3X, UPERNET

# "AdamW (.9, .999), eps 1e-8, lr 5e-4 * batch / 512, min lr 5e-6 * batch / 512, warm-up 20 epochs from 5e-7 * batch /
# 512, cosine per iteration, 300 epochs, weight decay .05 with none on 1-D parameters and biases, gradient clip 5,
# RandAugment rand-m9-mstd0.5-inc1, mixup .8, cutmix 1 (switch .5), erasing .25, smoothing .1; test: resize 256,
# centre crop 224".
_IMAGENET = dict(
    IMAGENET,
    clip=5.0,
    rates=(1e-6, cosine(1e-3, 1e-5, 20 / 300), 1e-5),
    undecayed={"norm", "bias"},
    evaluation=["short 256 bicubic", "crop 224"],
)
# "EMA of all weights and buffers, decay .9996^(batch / 4096)": 0.9999 at 1024. "λ = 1.0 (T), 1.5 (S), 2.0 (B)", from
# epoch 75.
_AVERAGED = dict(_IMAGENET, ema=("ExponentialMovingAverage", 0.0001))
MESA = {"t": 1.0, "s": 1.5, "b": 2.0}
MESA_FROM = 75
# PolaFormer, Swin: "none on relative_position_bias_table, 1-D, biases"; scale, power, and positions are decayed.
_POLA_SWIN = dict(_IMAGENET, undecayed={"norm", "bias", "table"})
# "30 epochs, lr 2e-5, wd 1e-8, warm-up 5, no crop in the test".
_POLA_384 = {**_POLA_SWIN, **AT_384, "drop_path": 0.5}
# PVT: "warm-up 5 from 1e-6, min 1e-5, cooldown 10 epochs, no clip (T, S) or 1 (M, L)".
_POLA_PVT = dict(_IMAGENET, epochs=310, warmup=5, rates=(2e-6, cosine(1e-3, 2e-5, 5 / 300), 2e-5), clip=None)
# "AdamW 1e-4, wd .05, none on parameters whose name contains norm (Linear and convolution biases are decayed), 2
# images per GPU, no clip, warm-up 500 iterations from .001, steps 8, 11 of 12 and 27, 33 of 36; flip, then one of:
# short side 480..800 step 32, long side at most 1333; or short side 400/500/600, crop 384..600, then 480..800. Test
# 1333x800. Drop path .1 (1x), .3 (3x)".
_MILA_COCO = {**COCO_1X, "undecayed": {"norm"}, "drop_path": 0.1}
# "AdamW 2e-4, 4 images per GPU, warm-up 1000 from .001; drop path 1x .1 (all), 3x .3 / .4 / .6".
_HVIT3_COCO = dict(_MILA_COCO, lr=2e-4, batch=32, warmup=1000, rates=(2e-7, 2e-4, 2e-6))
# "512x512, 160k, AdamW 6e-5, wd .01 (none on norm), warm-up 1500 from 1e-6, poly 1.0, 2 images per GPU; test whole
# image, short side 512". The heads' batch norms are called bn, and decay.
_UPERNET = {**UPERNET, "undecayed": {"norm"}}

RECIPES = {
    "classifier_mila_t_300e_imagenet.py": dict(_AVERAGED, drop_path=0.2),
    "classifier_mila_s_300e_imagenet.py": dict(_AVERAGED, drop_path=0.3),
    "classifier_mila_b_300e_imagenet.py": dict(_AVERAGED, drop_path=0.5),
    "classifier_h_vit3_t_300e_imagenet.py": dict(_AVERAGED, drop_path=0.2),
    "classifier_h_vit3_s_300e_imagenet.py": dict(_AVERAGED, drop_path=0.4),
    "classifier_h_vit3_b_300e_imagenet.py": dict(_AVERAGED, drop_path=0.6),
    "classifier_vit3_t_300e_imagenet.py": dict(_IMAGENET, drop_path=0.0),
    "classifier_vit3_s_300e_imagenet.py": dict(_IMAGENET, drop_path=0.1),
    "classifier_vit3_b_300e_imagenet.py": dict(_IMAGENET, drop_path=0.4),
    "classifier_pola_swin_t_300e_imagenet.py": dict(_POLA_SWIN, drop_path=0.2),
    "classifier_pola_swin_s_300e_imagenet.py": dict(_POLA_SWIN, drop_path=0.3),
    "classifier_pola_swin_b_300e_imagenet.py": dict(_POLA_SWIN, drop_path=0.5),
    "classifier_pola_swin_b_30e_imagenet384.py": _POLA_384,
    "classifier_pola_pvt_t_300e_imagenet.py": dict(_POLA_PVT, drop_path=0.1),
    "classifier_pola_pvt_s_300e_imagenet.py": dict(_POLA_PVT, drop_path=0.1),
    "classifier_pola_pvt_m_300e_imagenet.py": dict(_POLA_PVT, drop_path=0.3, clip=1.0),
    "classifier_pola_pvt_l_300e_imagenet.py": dict(_POLA_PVT, drop_path=0.3, clip=1.0),
    **{f"mask_rcnn_mila_{size}_1x_coco.py": _MILA_COCO for size in "tsb"},
    **{f"mask_rcnn_mila_{size}_3x_coco.py": _MILA_COCO | LENGTH_3X | dict(drop_path=0.3) for size in "ts"},
    **{f"mask_rcnn_h_vit3_{size}_1x_coco.py": _HVIT3_COCO for size in "tsb"},
    "mask_rcnn_h_vit3_t_3x_coco.py": _HVIT3_COCO | LENGTH_3X | dict(drop_path=0.3),
    "mask_rcnn_h_vit3_s_3x_coco.py": _HVIT3_COCO | LENGTH_3X | dict(drop_path=0.4),
    "mask_rcnn_h_vit3_b_3x_coco.py": _HVIT3_COCO | LENGTH_3X | dict(drop_path=0.6),
    # Drop path: "UperNet (B only): .5"; ViT³: ".2 / .4 / .5".
    "upernet_mila_b_160k_ade20k.py": dict(_UPERNET, drop_path=0.5),
    "upernet_h_vit3_t_160k_ade20k.py": dict(_UPERNET, drop_path=0.2),
    "upernet_h_vit3_s_160k_ade20k.py": dict(_UPERNET, drop_path=0.4),
    "upernet_h_vit3_b_160k_ade20k.py": dict(_UPERNET, drop_path=0.5),
}
