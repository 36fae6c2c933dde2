# DINOv2-S classifies the objects of the offline demo data by its class token, in minutes on two CPU cores. It starts from random
# weights, from DINOv2's by `mmlisa train classifier_dinov2_s_demo.py --pretrained timm:vit_small_patch14_dinov2.lvd142m`.
_base_ = [
    "./_base_/models/image_classifier.py",
    "./_base_/datasets/demo_classification.py",
    "./_base_/schedules/demo_vit.py",
    "./_base_/runtime_mmpretrain_iter.py",
]

model = dict(
    data_preprocessor=dict(num_classes=8),
    backbone=dict(type="mmlisa.DINOv2", arch="small", out_type="cls_token", drop_path_rate=0.1),
    neck=None,
    head=dict(_delete_=True, type="LinearClsHead", num_classes=8, in_channels=384),
)
