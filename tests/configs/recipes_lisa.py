"""LiSA, journal version, appendix A.2. What it leaves to the papers it refers to ([4] DeiT, [6] Swin, [18] PVT, [60]
ConvNeXt) is marked."""

# "0.0005 / 512 x batch_size", cosine decay, 20 warm-up epochs, Mixup, CutMix, label smoothing, RandAugment, random
# erasing, repeated augmentation. Batch, alphas and clipping: Swin.
_IMAGENET = dict(
    optimizer="AdamW",
    weight_decay=0.05,
    lr=5e-4 / 512 * 1024,
    batch=1024,
    clip=5.0,
    epochs=300,
    warmup=20,
    decay="CosineAnnealingLR",
    train_scales={224},
    test_scale=[256, 224],
    augments={"Mixup": 0.8, "CutMix": 1.0},
    transforms=["LoadImageFromFile", "RandomResizedCrop", "RandomFlip", "RandAugment", "RandomErasing", "PackInputs"],
    sampler="RepeatAugSampler",
)
# 90 epochs, 5 of warm-up, AdamW 4e-3 at 4096, weight decay 0.05, drop path 0.1 (S) and 0.2 (B).
_IMAGENET21K = dict(
    optimizer="AdamW", weight_decay=0.05, lr=4e-3, batch=4096, epochs=90, warmup=5, decay="CosineAnnealingLR"
)
# 30 epochs, AdamW 5e-5 at 512, weight decay 1e-8, cosine decay, drop path 0.1 (S) and 0.2 (B). No Mixup, no CutMix:
# ConvNeXt.
_FROM_21K = dict(
    optimizer="AdamW",
    weight_decay=1e-8,
    lr=5e-5,
    batch=512,
    epochs=30,
    warmup=0,
    decay="CosineAnnealingLR",
    train_scales={224},
    augments={},
)
# 12 epochs, batch 16, AdamW 1e-4, weight decay 0.05, short side 800, long side at most 1333, drop path 0.1. Warm-up
# and steps: Swin.
_COCO_1X = dict(
    optimizer="AdamW",
    weight_decay=0.05,
    lr=1e-4,
    batch=16,
    epochs=12,
    warmup=500,
    decay="MultiStepLR",
    milestones=[8, 11],
    # "We follow the other details proposed in [6]": Swin's multi-scale training.
    train_scales={(side, 1333) for side in range(480, 801, 32)}
    | {(side, 1333) for side in (400, 500, 600)}
    | {(384, 600)},
    test_scale=[(1333, 800)],
    drop_path=0.1,
)
# 80k iterations, cosine decay, drop path 0.15. Optimiser, batch and scales: PVT.
_SEMANTIC_FPN = dict(
    optimizer="AdamW",
    weight_decay=1e-4,
    lr=1e-4,
    batch=16,
    iterations=80000,
    warmup=0,
    decay="CosineAnnealingLR",
    train_scales={(2048, 512), (512, 512)},
    test_scale=[(2048, 512)],
    drop_path=0.15,
)
# Not in the paper: Swin's.
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
)
_COCO_3X = dict(
    _COCO_1X,
    epochs=36,
    milestones=[27, 33],
    drop_path=0.2,
)

RECIPES = {
    "classifier_lisanet_s_300e_imagenet.py": dict(_IMAGENET, drop_path=0.1),
    "classifier_lisanet_b_300e_imagenet.py": dict(_IMAGENET, drop_path=0.4),
    "classifier_hylisanet_s_300e_imagenet.py": dict(_IMAGENET, drop_path=0.1),
    "classifier_hylisanet_b_300e_imagenet.py": dict(_IMAGENET, drop_path=0.4),
    "classifier_lisanet_i_150e_imagenet.py": dict(_IMAGENET, epochs=150, drop_path=0.0),
    "classifier_lisanet_v1_tiny_300e_imagenet.py": dict(_IMAGENET, drop_path=0.1),
    "classifier_lisanet_v1_small_300e_imagenet.py": dict(_IMAGENET, drop_path=0.1),
    "classifier_lisanet_v1_base_300e_imagenet.py": dict(_IMAGENET, drop_path=0.4),
    "classifier_lisanet_i_30e_imagenet384.py": dict(train_scales={384}, test_scale=[(384, 384)], epochs=30),
    "classifier_hylisanet_s_90e_imagenet21k.py": dict(_IMAGENET21K, drop_path=0.1),
    "classifier_hylisanet_b_90e_imagenet21k.py": dict(_IMAGENET21K, drop_path=0.2),
    "classifier_hylisanet_s_in21k_30e_imagenet.py": dict(_FROM_21K, drop_path=0.1),
    "classifier_hylisanet_b_in21k_30e_imagenet.py": dict(_FROM_21K, drop_path=0.2),
    "mask_rcnn_lisanet_s_1x_coco.py": _COCO_1X,
    "mask_rcnn_hylisanet_s_1x_coco.py": _COCO_1X,
    "mask_rcnn_lisanet_v1_small_1x_coco.py": _COCO_1X,
    "mask_rcnn_hylisanet_s_3x_coco.py": _COCO_3X,
    "cascade_mask_rcnn_hylisanet_s_3x_coco.py": _COCO_3X,
    "semantic_fpn_lisanet_s_80k_ade20k.py": _SEMANTIC_FPN,
    "semantic_fpn_hylisanet_s_80k_ade20k.py": _SEMANTIC_FPN,
    "upernet_hylisanet_s_160k_ade20k.py": dict(_UPERNET, drop_path=0.3),
    "upernet_hylisanet_b_160k_ade20k.py": dict(_UPERNET, drop_path=0.4),
}
