# RTMDet-tiny, Castling-LCNet-ViT-S, 300 epochs. Ours: mmdet's recipe with another backbone.
_base_ = "mmdet::rtmdet/rtmdet_tiny_8xb32-300e_coco.py"

model = dict(
    # RGB, as the backbone's ImageNet weights were trained; mmdet's CSPNeXt takes BGR.
    data_preprocessor=dict(mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375], bgr_to_rgb=True),
    backbone=dict(
        _delete_=True,
        type="mmlisa.CastlingLCNetViT",
        arch="small",
        out_indices=(1, 2, 3),
        init_cfg=dict(type="mmlisa.PublishedWeights", source="timm:lcnet_075.ra2_in1k", min_matched=0.05),
    ),
)
val_evaluator = dict(type="mmlisa.CocoMetric")
test_evaluator = val_evaluator
custom_hooks = [
    *_base_.custom_hooks,  # EMA, and the pipeline without mosaic in the last 20 epochs
    dict(type="mmlisa.FiniteLossHook"),
    dict(type="mmlisa.TrainingCurvesHook"),
    dict(type="mmlisa.CastlingHook", interval=500),
]
# The rate is that of 8 x 32 images; mmdet's file inherits 16 from the recipe of ResNets.
auto_scale_lr = dict(base_batch_size=256)
