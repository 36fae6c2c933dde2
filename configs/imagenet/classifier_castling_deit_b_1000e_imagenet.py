# Castling-DeiT-B without distillation, ImageNet-1K, 1000 epochs. The paper's accuracy is that of
# classifier_castling_deit_b_distilled_1000e_imagenet.py.
_base_ = "../_base_/castling_imagenet.py"

model = dict(
    backbone=dict(type="mmlisa.CastlingDeiT", arch="base", out_type="cls_token", drop_path_rate=0.1),
    neck=None,
    head=dict(in_channels=768),
)
# 64 devices of 32 images; the paper names one learning rate for both batches.
train_dataloader = dict(batch_size=32)
auto_scale_lr = dict(base_batch_size=2048)
custom_hooks = [*_base_.custom_hooks, dict(type="mmlisa.CastlingHook", interval=500)]
