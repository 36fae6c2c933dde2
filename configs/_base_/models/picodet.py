# PicoDet; a config adds its backbone, the neck's type and widths, and the number of the head's convolutions.
model = dict(
    type="SingleStageDetector",
    data_preprocessor=dict(
        type="DetDataPreprocessor",
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
        pad_size_divisor=32,
    ),
    neck=dict(type="mmlisa.CSPPAN"),
    bbox_head=dict(type="mmlisa.PicoHead", num_classes=80),
    train_cfg=dict(assigner=dict(type="mmlisa.VarifocalSimOTAAssigner")),
    test_cfg=dict(
        nms_pre=1000, min_bbox_size=0, score_thr=0.025, nms=dict(type="nms", iou_threshold=0.6), max_per_img=100
    ),
)
