# PicoDet with Castling-LCNet-ViT-S from scratch on the offline demo data, in minutes on two CPU cores.
_base_ = [
    "./_base_/models/picodet.py",
    "./_base_/datasets/demo_instance.py",
    "./_base_/schedules/demo.py",
    "./_base_/runtime_mmdet_iter.py",
]

model = dict(
    backbone=dict(
        type="mmlisa.CastlingLCNetViT",
        arch="small",
        out_indices=(1, 2, 3),
        attention=dict(type="LinearAngularAttention", pooled=True, qkv_bias=False, aux=True, epsilon=0.02),
    ),
    neck=dict(type="mmlisa.LCPAN", in_channels=[96, 192, 384], out_channels=96),
    bbox_head=dict(in_channels=96, stacked_convs=2, num_classes=8),
)
# At 192 pixels the last stage has 36 tokens: the largest probability of a row is at least 1 / 36, so that 0.02 never empties
# the mask.
custom_hooks = [*_base_.custom_hooks, dict(type="mmlisa.CastlingHook", schedule="linear", begin=0.3, interval=10)]
val_evaluator = dict(metric="bbox")
test_evaluator = val_evaluator
train_dataloader = dict(batch_size=8)
auto_scale_lr = dict(base_batch_size=8)
train_cfg = dict(max_iters=900, val_interval=300)
param_scheduler = [
    dict(type="LinearLR", start_factor=0.01, by_epoch=False, begin=0, end=30),
    dict(type="CosineAnnealingLR", by_epoch=False, begin=30, end=900, eta_min=1e-5),
]
