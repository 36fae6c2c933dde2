# Castling-LeViT-192 without distillation, ImageNet-1K, 1000 epochs. The paper's accuracy is that of
# classifier_castling_levit_192_distilled_1000e_imagenet.py.
_base_ = "../_base_/castling_imagenet.py"

model = dict(
    backbone=dict(type="mmlisa.CastlingLeViT", arch="192", out_indices=(2,)),
    head=dict(in_channels=384),
)
train_dataloader = dict(batch_size=64)
# A stage of 49 tokens never empties the mask at the paper's 0.02: the threshold grows while the rate can still make up for it.
custom_hooks = [
    *_base_.custom_hooks,
    dict(type="mmlisa.CastlingHook", schedule="linear", begin=0.3, interval=500),
]
