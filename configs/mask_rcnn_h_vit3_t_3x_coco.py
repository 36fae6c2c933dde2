# Mask R-CNN, H-ViT³-T, 3x: the paper has box AP 48.9, mask AP 44.0.
_base_ = "./mask_rcnn_h_vit3_t_1x_coco.py"

model = dict(backbone=dict(drop_path_rate=0.3))
train_cfg = dict(max_epochs=36)
param_scheduler = [
    dict(type="LinearLR", start_factor=0.001, by_epoch=False, begin=0, end=1000),
    dict(type="MultiStepLR", begin=0, end=36, by_epoch=True, milestones=[27, 33], gamma=0.1),
]
