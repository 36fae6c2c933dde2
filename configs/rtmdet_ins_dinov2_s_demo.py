# DINOv2-S with three maps of the simple pyramid under RTMDet-Ins, on the offline demo data, in minutes on two CPU cores.
# It starts from random weights, from DINOv2's by
# `mmlisa train rtmdet_ins_dinov2_s_demo.py --pretrained timm:vit_small_patch14_dinov2.lvd142m`.
_base_ = [
    "./_base_/datasets/demo_instance.py",
    "./_base_/schedules/demo_vit.py",
    "./_base_/runtime_mmdet_iter.py",
]

width = 64
norm_cfg, act_cfg = dict(type="BN"), dict(type="SiLU", inplace=True)
model = dict(
    type="RTMDet",
    use_syncbn=False,  # PyTorch has it on GPUs only
    data_preprocessor=dict(
        type="DetDataPreprocessor",
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
        pad_size_divisor=28,
        pad_mask=True,
    ),
    backbone=dict(type="mmlisa.DINOv2", arch="small", drop_path_rate=0.1),
    neck=dict(type="mmlisa.SimpleFeaturePyramid", in_channels=384, out_channels=width, out_indices=(1, 2, 3)),
    bbox_head=dict(
        type="RTMDetInsSepBNHead",
        num_classes=8,
        in_channels=width,
        feat_channels=width,
        stacked_convs=2,
        anchor_generator=dict(type="MlvlPointGenerator", offset=0, strides=[7, 14, 28]),
        bbox_coder=dict(type="DistancePointBBoxCoder"),
        loss_cls=dict(type="QualityFocalLoss", use_sigmoid=True, beta=2.0),
        loss_bbox=dict(type="GIoULoss", loss_weight=2.0),
        loss_mask=dict(type="DiceLoss", loss_weight=2.0, eps=5e-6, reduction="mean"),
        mask_loss_stride=7,  # the finest map's; a divisor of its stride
        share_conv=True,
        pred_kernel_size=1,
        norm_cfg=norm_cfg,
        act_cfg=act_cfg,
    ),
    train_cfg=dict(assigner=dict(type="DynamicSoftLabelAssigner", topk=13), allowed_border=-1, pos_weight=-1),
    test_cfg=dict(
        nms_pre=500,
        min_bbox_size=0,
        score_thr=0.05,
        nms=dict(type="nms", iou_threshold=0.6),
        max_per_img=100,
        mask_thr_binary=0.5,
    ),
)
# The head's convolutions are shared by the levels.
optim_wrapper = dict(paramwise_cfg=dict(bypass_duplicate=True))
