# ImageNet-1K at 384 pixels, for fine-tuning: the test sees the whole image, squashed to a square, as Swin's and DeiT's do.
_base_ = "./imagenet.py"

train_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="RandomResizedCrop", scale=384, backend="pillow", interpolation="bicubic"),
    *_base_.augmentation,
]
test_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="Resize", scale=(384, 384), backend="pillow", interpolation="bicubic"),
    dict(type="PackInputs"),
]
train_dataloader = dict(batch_size=64, dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(batch_size=64, dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
