# Mask R-CNN, FLatten-Swin-T, 1x, straight from Swin-T's ImageNet weights, with a longer warm-up for the new attention. Ours.
_base_ = "./mask_rcnn_flatten_swin_t_1x_coco.py"

model = dict(
    backbone=dict(init_cfg=dict(type="mmlisa.PublishedWeights", source="timm:swin_tiny_patch4_window7_224.ms_in1k")),
)
param_scheduler = [
    dict(type="LinearLR", start_factor=0.001, by_epoch=False, begin=0, end=3000),
    dict(type="MultiStepLR", begin=0, end=12, by_epoch=True, milestones=[8, 11], gamma=0.1),
]
