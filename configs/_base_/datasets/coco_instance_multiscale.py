# Swin's multi-scale training: the short side between 480 and 800, half of the time after a random crop.
_base_ = "./coco_instance.py"

_short_sides = (480, 512, 544, 576, 608, 640, 672, 704, 736, 768, 800)
_resize = dict(type="RandomChoiceResize", scales=[(side, 1333) for side in _short_sides], keep_ratio=True)
train_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="LoadAnnotations", with_bbox=True, with_mask=True),
    dict(type="RandomFlip", prob=0.5),
    dict(
        type="RandomChoice",
        transforms=[
            [_resize],
            [
                dict(type="RandomChoiceResize", scales=[(400, 1333), (500, 1333), (600, 1333)], keep_ratio=True),
                dict(type="RandomCrop", crop_type="absolute_range", crop_size=(384, 600), allow_negative_crop=True),
                _resize,
            ],
        ],
    ),
    dict(type="PackDetInputs"),
]
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
