# RTMDet with Castling-LCNet-ViT-S, from scratch on the offline demo data.
_base_ = [
    "./_base_/datasets/demo_instance.py",
    "./_base_/schedules/demo.py",
    "./_base_/runtime_mmdet_iter.py",
]

width = 64
norm_cfg, act_cfg = dict(type="BN"), dict(type="SiLU", inplace=True)
model = dict(
    type="RTMDet",
    data_preprocessor=dict(
        type="DetDataPreprocessor",
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
        pad_size_divisor=32,
    ),
    backbone=dict(type="mmlisa.CastlingLCNetViT", arch="small", image_size=192, out_indices=(1, 2, 3)),
    neck=dict(
        type="CSPNeXtPAFPN",
        in_channels=[96, 192, 384],
        out_channels=width,
        num_csp_blocks=1,
        expand_ratio=0.5,
        norm_cfg=norm_cfg,
        act_cfg=act_cfg,
    ),
    bbox_head=dict(
        type="RTMDetSepBNHead",
        num_classes=8,
        in_channels=width,
        feat_channels=width,
        stacked_convs=2,
        anchor_generator=dict(type="MlvlPointGenerator", offset=0, strides=[8, 16, 32]),
        bbox_coder=dict(type="DistancePointBBoxCoder"),
        loss_cls=dict(type="QualityFocalLoss", use_sigmoid=True, beta=2.0),
        loss_bbox=dict(type="GIoULoss", loss_weight=2.0),
        with_objectness=False,
        exp_on_reg=True,
        share_conv=True,
        norm_cfg=norm_cfg,
        act_cfg=act_cfg,
    ),
    train_cfg=dict(assigner=dict(type="DynamicSoftLabelAssigner", topk=13), allowed_border=-1, pos_weight=-1),
    test_cfg=dict(
        nms_pre=500, min_bbox_size=0, score_thr=0.001, nms=dict(type="nms", iou_threshold=0.65), max_per_img=100
    ),
)
# Boxes alone: where there are masks, the assigner takes them for its own.
train_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="LoadAnnotations", with_bbox=True),
    dict(type="Resize", scale=(192, 192), keep_ratio=True),
    dict(type="RandomFlip", prob=0.5),
    dict(type="PackDetInputs"),
]
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
# The head's convolutions are shared by the levels.
optim_wrapper = dict(paramwise_cfg=dict(bypass_duplicate=True))
val_evaluator = dict(metric="bbox")
test_evaluator = val_evaluator
# At 192 pixels the last stage has 36 tokens: no row of theirs ever falls below 0.02 as a whole, so the threshold has to rise.
custom_hooks = [*_base_.custom_hooks, dict(type="mmlisa.CastlingHook", schedule="linear", begin=0.3, interval=10)]
