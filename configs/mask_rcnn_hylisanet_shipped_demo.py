# The model that the wheel ships (`mmlisa demo`): narrower than mask_rcnn_hylisanet_demo.py, trained longer, at several sizes.
_base_ = "./mask_rcnn_hylisanet_demo.py"

model = dict(
    # The shipped weights have a position embedding in each block.
    backbone=dict(arch=dict(channels=(32, 64, 96, 128), num_heads=(2, 4, 6, 8), position="conv")),
    neck=dict(in_channels=[32, 64, 96, 128]),
    roi_head=dict(bbox_head=dict(fc_out_channels=96)),
    train_cfg=dict(rcnn=dict(sampler=dict(num=128))),
)
train_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="LoadAnnotations", with_bbox=True, with_mask=True),
    dict(type="RandomResize", scale=(192, 192), ratio_range=(0.8, 1.3), keep_ratio=True),
    dict(type="RandomFlip", prob=0.5),
    dict(type="PackDetInputs"),
]
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
train_cfg = dict(max_iters=1000, val_interval=500)
param_scheduler = [
    dict(type="LinearLR", start_factor=0.01, by_epoch=False, begin=0, end=30),
    dict(type="CosineAnnealingLR", by_epoch=False, begin=30, end=1000, eta_min=1e-5),
]
