# ImageNet-1K at 672 pixels, for fine-tuning.
_base_ = "./imagenet.py"

train_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="RandomResizedCrop", scale=672, backend="pillow", interpolation="bicubic"),
    *_base_.augmentation,
]
test_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="Resize", scale=(672, 672), backend="pillow", interpolation="bicubic"),
    dict(type="PackInputs"),
]
train_dataloader = dict(batch_size=64, dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(batch_size=64, dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
