"""Recipes that several papers take over from DeiT and Swin."""

from . import cosine

DEIT_AUGMENTATION = dict(
    train_scales={224},
    augments={"Mixup": 0.8, "CutMix": 1.0},
    transforms=["LoadImageFromFile", "RandomResizedCrop", "RandomFlip", "RandAugment", "RandomErasing", "PackInputs"],
)
ADAMW = dict(optimizer="AdamW", weight_decay=0.05, decay="CosineAnnealingLR", decays_every="iteration")
# Swin's classifiers at 1024 images; papers differ in clipping, in the first and last rates and in what decays.
IMAGENET = dict(**DEIT_AUGMENTATION, **ADAMW, lr=1e-3, batch=1024, epochs=300, warmup=20)
# Swin's fine-tuning: 2e-5 per 512 images.
AT_384 = dict(
    weight_decay=1e-8,
    lr=4e-5,
    batch=1024,
    epochs=30,
    warmup=5,
    rates=(4e-8, cosine(4e-5, 4e-7, 5 / 30), 4e-7),
    train_scales={384},
    evaluation=["squash 384x384 bicubic"],
)
# Swin's Mask R-CNN: norms and relative positions do not decay.
COCO_1X = dict(
    optimizer="AdamW",
    weight_decay=0.05,
    lr=1e-4,
    batch=16,
    epochs=12,
    warmup=500,
    decay="MultiStepLR",
    milestones=[8, 11],
    rates=(1e-7, 1e-4, 1e-6),
    clip=None,
    undecayed={"norm", "table"},
    train_scales={(side, 1333) for side in (400, 500, 600, *range(480, 801, 32))} | {(384, 600)},
    evaluation=["fit 1333x800 bilinear"],
)
LENGTH_3X = dict(epochs=36, milestones=[27, 33])
# PVT's Semantic FPN: all parameters decay.
SEMANTIC_FPN = dict(
    optimizer="AdamW",
    weight_decay=1e-4,
    lr=1e-4,
    batch=16,
    iterations=80000,
    rates=(1e-4, 1e-4, 0.0),
    undecayed=set(),
    evaluation=["fit 2048x512 bilinear"],
)
# Swin's UperNet.
UPERNET = dict(
    optimizer="AdamW",
    weight_decay=0.01,
    lr=6e-5,
    batch=16,
    iterations=160000,
    warmup=1500,
    decay="PolyLR",
    power=1.0,
    rates=(6e-11, 6e-5, 0.0),
    undecayed={"norm", "table"},
    train_scales={(2048, 512), (512, 512)},
    evaluation=["fit 2048x512 bilinear"],
)
