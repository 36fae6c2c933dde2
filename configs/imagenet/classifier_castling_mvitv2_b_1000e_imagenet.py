# Castling-MViTv2-B without distillation, ImageNet-1K, 1000 epochs. The paper's accuracy is that of
# classifier_castling_mvitv2_b_distilled_1000e_imagenet.py.
_base_ = "../_base_/castling_imagenet.py"

model = dict(
    backbone=dict(type="mmlisa.CastlingMViTv2", arch="base", out_indices=(3,), drop_path_rate=0.3),
    head=dict(in_channels=768),
)
# 64 devices of 32 images; the paper names one learning rate for both batches.
train_dataloader = dict(batch_size=32)
auto_scale_lr = dict(base_batch_size=2048)
# A stage of 49 tokens never empties the mask at the paper's 0.02: the threshold grows while the rate can still make up for it.
custom_hooks = [
    *_base_.custom_hooks,
    dict(type="mmlisa.CastlingHook", schedule="linear", begin=0.3, interval=500),
]
