# DINOv3-S with the simple pyramid under a light Mask R-CNN, on the offline demo data, in minutes on two CPU cores. It starts from
# random weights, from DINOv3's by `mmlisa train mask_rcnn_dinov3_s_demo.py --pretrained timm:vit_small_patch16_dinov3.lvd1689m`.
_base_ = [
    "./_base_/models/mask_rcnn.py",
    "./_base_/datasets/demo_instance.py",
    "./_base_/schedules/demo_vit.py",
    "./_base_/runtime_mmdet_iter.py",
]

num_classes = 8
width = 64  # of the neck and the heads, instead of 256
model = dict(
    backbone=dict(type="mmlisa.DINOv3", arch="small", drop_path_rate=0.1),
    neck=dict(_delete_=True, type="mmlisa.SimpleFeaturePyramid", in_channels=384, out_channels=width),
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
