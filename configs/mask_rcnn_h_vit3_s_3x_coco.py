# Mask R-CNN, H-ViT³-S, 3x: the paper has box AP 50.5, mask AP 45.0.
_base_ = "./mask_rcnn_h_vit3_s_1x_coco.py"

model = dict(backbone=dict(drop_path_rate=0.4))
train_cfg = dict(max_epochs=36)
param_scheduler = [
    dict(type="LinearLR", start_factor=0.001, by_epoch=False, begin=0, end=1000),
    dict(type="MultiStepLR", begin=0, end=36, by_epoch=True, milestones=[27, 33], gamma=0.1),
]
