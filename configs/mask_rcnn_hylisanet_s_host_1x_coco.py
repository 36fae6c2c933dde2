# Mask R-CNN, HyLiSANet-S, 1x, straight from CAFormer-S36's ImageNet weights, with a longer warm-up for the new attention. Ours.
_base_ = "./mask_rcnn_hylisanet_s_1x_coco.py"

model = dict(
    backbone=dict(init_cfg=dict(type="mmlisa.PublishedWeights", source="timm:caformer_s36.sail_in1k")),
)
param_scheduler = [
    dict(type="LinearLR", start_factor=0.001, by_epoch=False, begin=0, end=3000),
    dict(type="MultiStepLR", begin=0, end=12, by_epoch=True, milestones=[8, 11], gamma=0.1),
]
