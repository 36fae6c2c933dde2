# ImageNet-1K as class folders (data/imagenet/{train,val}/<class>/*), at 224 pixels, with the augmentation of DeiT and Swin.
# The folders name the classes, in sorted order, so a small folder of any classes works.
_rgb_mean, _rgb_std = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]
augmentation = [
    dict(type="RandomFlip", prob=0.5, direction="horizontal"),
    dict(
        type="RandAugment",
        policies="timm_increasing",
        num_policies=2,
        total_level=10,
        magnitude_level=9,
        magnitude_std=0.5,
        hparams=dict(pad_val=[round(x) for x in _rgb_mean[::-1]], interpolation="bicubic"),
    ),
    dict(
        type="RandomErasing",
        erase_prob=0.25,
        mode="rand",
        min_area_ratio=0.02,
        max_area_ratio=1 / 3,
        fill_color=_rgb_mean[::-1],
        fill_std=_rgb_std[::-1],
    ),
    dict(type="PackInputs"),
]
train_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="RandomResizedCrop", scale=224, backend="pillow", interpolation="bicubic"),
    *augmentation,
]
test_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="ResizeEdge", scale=256, edge="short", backend="pillow", interpolation="bicubic"),
    dict(type="CenterCrop", crop_size=224),
    dict(type="PackInputs"),
]
train_dataloader = dict(
    batch_size=128,
    num_workers=8,
    persistent_workers=True,
    sampler=dict(type="DefaultSampler", shuffle=True),
    dataset=dict(
        type="CustomDataset",
        data_root="data/imagenet",
        data_prefix="train",
        pipeline=train_pipeline,
    ),
)
val_dataloader = dict(
    batch_size=128,
    num_workers=8,
    persistent_workers=True,
    sampler=dict(type="DefaultSampler", shuffle=False),
    dataset=dict(
        type="CustomDataset",
        data_root="data/imagenet",
        data_prefix="val",
        pipeline=test_pipeline,
    ),
)
test_dataloader = val_dataloader
val_evaluator = dict(type="Accuracy", topk=(1, 5))
test_evaluator = val_evaluator
