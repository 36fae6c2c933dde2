# ADE20K as Mask2Former's large backbones see it: crops of 640 from a short side of 320 to 1280 in steps of 64, a long side of at
# most 2560, no limit to the share of a class; tested at a short side of 640.
_base_ = "./ade20k.py"

crop_size = (640, 640)
train_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="LoadAnnotations", reduce_zero_label=True),
    dict(
        type="RandomChoiceResize",
        scales=[64 * tenths for tenths in range(5, 21)],
        resize_type="ResizeShortestEdge",
        max_size=2560,
    ),
    dict(type="RandomCrop", crop_size=crop_size, cat_max_ratio=1.0),
    dict(type="RandomFlip", prob=0.5),
    dict(type="PhotoMetricDistortion"),
    dict(type="PackSegInputs"),
]
test_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="Resize", scale=(2560, 640), keep_ratio=True),
    dict(type="LoadAnnotations", reduce_zero_label=True),
    dict(type="PackSegInputs"),
]
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
