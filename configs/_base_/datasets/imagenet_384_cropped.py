# ImageNet-1K at 384 pixels, tested as FLatten's code tests CSwin-B: squashed to 438 x 438, then cropped in the centre.
_base_ = "./imagenet_384.py"

test_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="Resize", scale=(438, 438), backend="pillow", interpolation="bicubic"),
    dict(type="CenterCrop", crop_size=384),
    dict(type="PackInputs"),
]
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
