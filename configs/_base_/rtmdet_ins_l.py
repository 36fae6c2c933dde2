# RTMDet-Ins-L, 300 epochs, as mmdet trains it; a config adds its backbone and the neck's in_channels.
_base_ = "mmdet::rtmdet/rtmdet-ins_l_8xb32-300e_coco.py"

model = dict(
    # RGB, as the backbones' ImageNet weights were trained; mmdet's CSPNeXt takes BGR.
    data_preprocessor=dict(mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375], bgr_to_rgb=True),
    backbone=dict(_delete_=True),
)
val_evaluator = dict(type="mmlisa.CocoMetric")
test_evaluator = val_evaluator
custom_hooks = [
    *_base_.custom_hooks,  # EMA, and the pipeline without mosaic in the last 20 epochs
    dict(type="mmlisa.FiniteLossHook"),
    dict(type="mmlisa.TrainingCurvesHook"),
]
# The rate is that of 8 x 32 images; mmdet's file inherits 16 from the recipe of ResNets.
auto_scale_lr = dict(base_batch_size=256)
