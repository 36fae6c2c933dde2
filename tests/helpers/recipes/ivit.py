"""iViT, appendix, Tables 9 and 10. What it leaves to the papers it refers to (DeiT, Swin, MetaFormer) is marked."""

from . import cosine
from .shared import COCO_1X, IMAGENET, LENGTH_3X, UPERNET

# Table 9: "epochs 300 30 300", "batch size 1024 1024 4096", "optimizer AdamW AdamW LAMB", "learning rate 1e-3 5e-6
# 8e-3", "weight decay 5e-2 1e-8 5e-2", "warmup epochs 5 5 20", "stoch. depth 0.1 0.1 0.15/0.3/0.4", "rand augment 9 /
# 0.5", "mixup prob. 0.8", "cutmix prob. 1", "erasing prob. 0.25" in the columns "Tables 2 and 3", "Table 4" and "Table
# 5". Else "we follow the ImageNet-1K hyper-parameter of Touvron et al. (2021)" (first and last rates, steps of an
# epoch, test crop) and "the similar hyper-parameters of Yu et al. (2022)" (MetaFormer's last rate; CAFormer's test
# without a border, "crop_pct 1.0").
_IVIT = dict(
    IMAGENET | dict(optimizer="mmlisa.Lamb", lr=8e-3, batch=4096),
    clip=None,
    rates=(8e-6, cosine(8e-3, 1e-5, 20 / 300), 1e-5),
    evaluation=["short 224 bicubic", "crop 224"],
    undecayed={"norm", "bias", "scale"},
)
_VIT = dict(
    IMAGENET | dict(warmup=5, decays_every="epoch"),
    clip=None,
    rates=(1e-6, cosine(1e-3, 1e-5, 5 / 300), 1e-5),
    evaluation=["short 256 bicubic", "crop 224"],
    undecayed={"norm", "bias", "position"},
    drop_path=0.1,
    sampler="RepeatAugSampler",  # DeiT
)
# Table 9, column "Table 4", "learning rate decay cosine cosine" in the two others; whose only rates of augmentation are
# those of the first column, and which has no decay of the rate, as DeiT's fine-tuning at 384 pixels, whose is the test
# on the whole image, too.
_FINE_TUNING = _VIT | dict(
    lr=5e-6, weight_decay=1e-8, epochs=30, decay=None, decays_every=None, sampler="DefaultSampler"
)
_FINE_TUNING |= dict(rates=(5e-9, 5e-6, 5e-6))
# Table 10: "epoch 36", "batch size 16", "optimizer AdamW", "learning rate 1e-4", "learning rate decay step-lr", "weight
# decay 5e-2", "stoch. depth 0.2/0.3/0.4". "We adopt the hyper-parameter setting of Swin": warm-up, steps and scales.
# CAFormer's scales are spared as norms are.
_COCO_3X = {**COCO_1X, **LENGTH_3X, "undecayed": {"norm", "scale"}}
# Table 10: "iteration 160K", "batch size 16", "learning rate 8e-5", "learning rate decay poly", "weight decay 5e-2",
# "stoch. depth 0.4"; the text of A.3 has a learning rate of 5e-8, a slip. "We follow the hyper-parameter of Swin":
# warm-up.
_ADE20K = {
    **UPERNET,
    "lr": 8e-5,
    "weight_decay": 0.05,
    "drop_path": 0.4,
    "rates": (8e-11, 8e-5, 0.0),
    "undecayed": {"norm", "scale"},
}
RECIPES = {
    "classifier_ivit_t_300e_imagenet.py": dict(_IVIT, drop_path=0.15),
    "classifier_ivit_s_300e_imagenet.py": dict(_IVIT, drop_path=0.3),
    "classifier_ivit_b_300e_imagenet.py": dict(_IVIT, drop_path=0.4),
    **{
        f"classifier_vit_{size}_{attention}_300e_imagenet.py": _VIT
        for size in ("t16", "t8", "s16")
        for attention in ("interactive", "softmax")
    },
    **{
        f"classifier_vit_{size}_{attention}_30e_imagenet{side}.py": {
            **_FINE_TUNING,
            "train_scales": {side},
            "evaluation": [f"squash {side}x{side} bicubic"],
        }
        for size in ("t16", "s16")
        for attention in ("interactive", "softmax")
        for side in (448, 672, 896)
    },
    "mask_rcnn_ivit_t_3x_coco.py": dict(_COCO_3X, drop_path=0.2),
    "mask_rcnn_ivit_s_3x_coco.py": dict(_COCO_3X, drop_path=0.3),
    "mask_rcnn_ivit_b_3x_coco.py": dict(_COCO_3X, drop_path=0.4),
    "cascade_mask_rcnn_ivit_t_3x_coco.py": dict(_COCO_3X, drop_path=0.2),  # beyond the paper
    **{f"upernet_ivit_{size}_160k_ade20k.py": _ADE20K for size in "tsb"},
}
