# Castling-LeViT-384, ImageNet-1K, 1000 epochs: the paper has 83.7% top-1 (Castling-ViT, Table 2).
_base_ = "../_base_/castling_imagenet.py"

model = dict(
    backbone=dict(type="mmlisa.CastlingLeViT", arch="384", out_indices=(2,)),
    head=dict(in_channels=768),
)
train_dataloader = dict(batch_size=64)
# A stage of 49 tokens never empties the mask at 0.02: the threshold grows while the rate can still make up for it.
custom_hooks = [
    *_base_.custom_hooks,
    dict(type="mmlisa.CastlingHook", schedule="linear", begin=0.3, interval=500),
]
