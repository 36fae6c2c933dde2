# YOLOX with Castling-ESNet-ViT-S, from scratch on the offline demo data.
_base_ = [
    "./_base_/datasets/demo_instance.py",
    "./_base_/schedules/demo.py",
    "./_base_/runtime_mmdet_iter.py",
]

width = 64
model = dict(
    type="YOLOX",
    data_preprocessor=dict(
        type="DetDataPreprocessor",
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
        pad_size_divisor=32,
    ),
    backbone=dict(type="mmlisa.CastlingESNetViT", arch="small", image_size=192),
    neck=dict(type="YOLOXPAFPN", in_channels=[96, 192, 384], out_channels=width, num_csp_blocks=1),
    bbox_head=dict(type="YOLOXHead", num_classes=8, in_channels=width, feat_channels=width, strides=(8, 16, 32)),
    train_cfg=dict(assigner=dict(type="SimOTAAssigner", center_radius=2.5)),
    test_cfg=dict(score_thr=0.01, nms=dict(type="nms", iou_threshold=0.65)),
)
val_evaluator = dict(metric="bbox")
test_evaluator = val_evaluator
# At 192 pixels the last stage has 36 tokens: no row of theirs ever falls below 0.02 as a whole, so the threshold has to rise.
custom_hooks = [*_base_.custom_hooks, dict(type="mmlisa.CastlingHook", schedule="linear", begin=0.3, interval=10)]
