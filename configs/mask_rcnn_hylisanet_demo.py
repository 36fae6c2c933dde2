# A narrow HyLiSANet under a light Mask R-CNN, from scratch on the offline demo data, in minutes on two CPU cores.
_base_ = [
    "./_base_/models/mask_rcnn.py",
    "./_base_/datasets/demo_instance.py",
    "./_base_/schedules/demo.py",
    "./_base_/runtime_mmdet_iter.py",
]

num_classes = 8
width = 64  # of the neck and the heads, instead of 256
model = dict(
    backbone=dict(
        type="mmlisa.LiSANet",
        arch=dict(base="hybrid-small", depths=(1, 2, 3, 1), channels=(32, 64, 128, 160), num_heads=(2, 4, 8, 10)),
        image_size=192,
    ),
    neck=dict(in_channels=[32, 64, 128, 160], out_channels=width),
    rpn_head=dict(in_channels=width, feat_channels=width, anchor_generator=dict(scales=[4])),
    roi_head=dict(
        bbox_roi_extractor=dict(out_channels=width),
        bbox_head=dict(in_channels=width, fc_out_channels=256, num_classes=num_classes),
        mask_roi_extractor=dict(out_channels=width),
        mask_head=dict(num_convs=2, in_channels=width, conv_out_channels=width, num_classes=num_classes),
    ),
    train_cfg=dict(rpn_proposal=dict(nms_pre=500, max_per_img=200), rcnn=dict(sampler=dict(num=64))),
    test_cfg=dict(rpn=dict(nms_pre=500, max_per_img=200)),
)
