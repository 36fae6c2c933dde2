# ImageNet-1K, tested on the largest square of 224 pixels, as MetaFormer's code tests CAFormer (crop ratio 1.0).
_base_ = "./imagenet.py"

test_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="ResizeEdge", scale=224, edge="short", backend="pillow", interpolation="bicubic"),
    dict(type="CenterCrop", crop_size=224),
    dict(type="PackInputs"),
]
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
