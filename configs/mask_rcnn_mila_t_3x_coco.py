# Mask R-CNN, MILA-T, 3x: the paper has box AP 48.8, mask AP 43.8.
_base_ = "./mask_rcnn_mila_t_1x_coco.py"

model = dict(backbone=dict(drop_path_rate=0.3))
train_cfg = dict(max_epochs=36)
param_scheduler = [
    dict(type="LinearLR", start_factor=0.001, by_epoch=False, begin=0, end=500),
    dict(type="MultiStepLR", begin=0, end=36, by_epoch=True, milestones=[27, 33], gamma=0.1),
]
