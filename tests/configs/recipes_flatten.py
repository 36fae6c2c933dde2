"""FLatten, Sec. 5, and the recipes of its hosts that it refers to ("the exact same settings as the corresponding baseline")."""

# AdamW 1e-3 at 1024 images, weight decay 0.05, 300 epochs of cosine decay after 20 of warm-up, RandAugment, Mixup, CutMix,
# random erasing as DeiT; clipping in Swin only; 30 epochs at 384 pixels.
_IMAGENET = dict(
    optimizer="AdamW",
    weight_decay=0.05,
    lr=1e-3,
    batch=1024,
    clip=None,
    epochs=300,
    warmup=20,
    decay="CosineAnnealingLR",
    train_scales={224},
    test_scale=[256, 224],
    augments={"Mixup": 0.8, "CutMix": 1.0},
    transforms=["LoadImageFromFile", "RandomResizedCrop", "RandomFlip", "RandAugment", "RandomErasing", "PackInputs"],
)
_SWIN_IMAGENET = dict(_IMAGENET, clip=5.0)
_AT_384 = dict(epochs=30, train_scales={384}, test_scale=[(384, 384)], decay="CosineAnnealingLR", drop_path=0.5)
# Swin: multi-scale 480-800, 12 or 36 epochs.
_SWIN_COCO = dict(
    optimizer="AdamW",
    weight_decay=0.05,
    lr=1e-4,
    batch=16,
    epochs=12,
    warmup=500,
    decay="MultiStepLR",
    milestones=[8, 11],
    train_scales={(side, 1333) for side in (400, 500, 600, *range(480, 801, 32))} | {(384, 600)},
    test_scale=[(1333, 800)],
)
_SWIN_COCO_3X = dict(_SWIN_COCO, epochs=36, milestones=[27, 33])
# PVT: one scale.
_PVT_COCO = dict(_SWIN_COCO, weight_decay=1e-4, lr=2e-4, train_scales={(1333, 800)}, drop_path=0.1)
_UPERNET = dict(
    optimizer="AdamW",
    weight_decay=0.01,
    lr=6e-5,
    batch=16,
    iterations=160000,
    warmup=1500,
    decay="PolyLR",
    train_scales={(2048, 512), (512, 512)},
    test_scale=[(2048, 512)],
    drop_path=0.3,
)
_SEMANTIC_FPN = dict(optimizer="AdamW", weight_decay=1e-4, lr=1e-4, batch=16, iterations=80000, decay="PolyLR")

RECIPES = {
    "classifier_flatten_swin_t_300e_imagenet.py": dict(_SWIN_IMAGENET, drop_path=0.2),
    "classifier_flatten_swin_s_300e_imagenet.py": dict(_SWIN_IMAGENET, drop_path=0.3),
    "classifier_flatten_swin_b_300e_imagenet.py": dict(_SWIN_IMAGENET, drop_path=0.5),
    "classifier_flatten_swin_b_30e_imagenet384.py": _AT_384,
    "classifier_flatten_pvt_t_300e_imagenet.py": dict(_IMAGENET, drop_path=0.1),
    "classifier_flatten_pvt_s_300e_imagenet.py": dict(_IMAGENET, drop_path=0.1),
    "classifier_flatten_pvt_m_300e_imagenet.py": dict(_IMAGENET, drop_path=0.3),
    "classifier_flatten_pvt_l_300e_imagenet.py": dict(_IMAGENET, drop_path=0.3),
    "classifier_flatten_pvtv2_b0_300e_imagenet.py": dict(_IMAGENET, drop_path=0.1),
    "classifier_flatten_pvtv2_b1_300e_imagenet.py": dict(_IMAGENET, drop_path=0.1),
    "classifier_flatten_pvtv2_b2_300e_imagenet.py": dict(_IMAGENET, drop_path=0.1),
    "classifier_flatten_pvtv2_b3_300e_imagenet.py": dict(_IMAGENET, drop_path=0.3),
    "classifier_flatten_pvtv2_b4_300e_imagenet.py": dict(_IMAGENET, drop_path=0.3),
    "classifier_flatten_cswin_t_300e_imagenet.py": dict(_IMAGENET, drop_path=0.2),
    "classifier_flatten_cswin_s_300e_imagenet.py": dict(_IMAGENET, drop_path=0.4),
    "classifier_flatten_cswin_b_300e_imagenet.py": dict(_IMAGENET, drop_path=0.5),
    "classifier_flatten_cswin_b_30e_imagenet384.py": _AT_384,
    "classifier_flatten_deit_t_300e_imagenet.py": dict(_IMAGENET, drop_path=0.1),
    "mask_rcnn_flatten_pvt_t_1x_coco.py": _PVT_COCO,
    "mask_rcnn_flatten_swin_t_1x_coco.py": _SWIN_COCO,
    "mask_rcnn_flatten_swin_t_3x_coco.py": _SWIN_COCO_3X,
    "cascade_mask_rcnn_flatten_swin_t_3x_coco.py": _SWIN_COCO_3X,
    "cascade_mask_rcnn_flatten_swin_s_3x_coco.py": _SWIN_COCO_3X,
    "upernet_flatten_swin_t_160k_ade20k.py": _UPERNET,
    "upernet_flatten_swin_s_160k_ade20k.py": _UPERNET,
    "semantic_fpn_flatten_pvt_t_80k_ade20k.py": _SEMANTIC_FPN,
}
