# ImageNet-1K, tested as FLatten's code does: squashed to 256 x 256, whatever the ratio of the sides, then cropped in the centre.
# Its official weights give the printed accuracies only so.
_base_ = "./imagenet.py"

test_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="Resize", scale=(256, 256), backend="pillow", interpolation="bicubic"),
    dict(type="CenterCrop", crop_size=224),
    dict(type="PackInputs"),
]
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
