# RetinaNet with a narrow FLatten-Swin, from scratch on the offline demo data.
_base_ = [
    "./_base_/datasets/demo_instance.py",
    "./_base_/schedules/demo.py",
    "./_base_/runtime_mmdet_iter.py",
]

channels, width = [32, 64, 128, 160], 64
model = dict(
    type="RetinaNet",
    data_preprocessor=dict(
        type="DetDataPreprocessor",
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
        pad_size_divisor=32,
    ),
    backbone=dict(
        type="mmlisa.FLattenSwin",
        arch=dict(base="tiny", depths=(2, 2, 2, 2), channels=channels, num_heads=(2, 4, 8, 10)),
        image_size=192,
        # The pyramid starts at stride 8. Not returning stage 0 (instead of start_level=1 in the neck) leaves no norm of it
        # without a gradient, which DistributedDataParallel would refuse.
        out_indices=(1, 2, 3),
    ),
    neck=dict(
        type="FPN",
        in_channels=channels[1:],
        out_channels=width,
        start_level=0,
        add_extra_convs="on_input",
        num_outs=5,
    ),
    bbox_head=dict(
        type="RetinaHead",
        num_classes=8,
        in_channels=width,
        feat_channels=width,
        stacked_convs=2,
        anchor_generator=dict(
            type="AnchorGenerator",
            octave_base_scale=4,
            scales_per_octave=3,
            ratios=[0.5, 1.0, 2.0],
            strides=[8, 16, 32, 64, 128],
        ),
        bbox_coder=dict(type="DeltaXYWHBBoxCoder"),
        loss_cls=dict(type="FocalLoss", use_sigmoid=True, gamma=2.0, alpha=0.25),
        loss_bbox=dict(type="L1Loss"),
    ),
    train_cfg=dict(
        assigner=dict(type="MaxIoUAssigner", pos_iou_thr=0.5, neg_iou_thr=0.4, min_pos_iou=0, ignore_iof_thr=-1),
        sampler=dict(type="PseudoSampler"),
        allowed_border=-1,
        pos_weight=-1,
    ),
    test_cfg=dict(
        nms_pre=500, min_bbox_size=0, score_thr=0.05, nms=dict(type="nms", iou_threshold=0.5), max_per_img=100
    ),
)
val_evaluator = dict(metric="bbox")
test_evaluator = val_evaluator
