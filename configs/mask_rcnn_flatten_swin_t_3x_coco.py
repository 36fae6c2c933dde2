# Mask R-CNN, FLatten-Swin-T, 3x: the paper has box AP 46.5, mask AP 42.1 (FLatten, Table 2a).
_base_ = "./mask_rcnn_flatten_swin_t_1x_coco.py"

model = dict(backbone=dict(drop_path_rate=0.2))
train_cfg = dict(max_epochs=36)
param_scheduler = [
    dict(type="LinearLR", start_factor=0.001, by_epoch=False, begin=0, end=500),
    dict(type="MultiStepLR", begin=0, end=36, by_epoch=True, milestones=[27, 33], gamma=0.1),
]
