# Castling-ESNet-ViT-M, ImageNet-1K: where PicoDet's backbone starts from, "following LeViT's recipe" (Castling-ViT, Sec. 4.1).
_base_ = "../_base_/castling_imagenet.py"

model = dict(
    backbone=dict(
        type="mmlisa.CastlingESNetViT",
        arch="medium",
        out_indices=[-1],
        attention=dict(type="LinearAngularAttention", pooled=True, aux=True, epsilon=0.02),
    ),
    head=dict(in_channels=512),
)
train_dataloader = dict(batch_size=64)
# A stage of 49 tokens never empties the mask at 0.02: the threshold grows while the rate can still make up for it.
custom_hooks = [
    *_base_.custom_hooks,
    dict(type="mmlisa.CastlingHook", schedule="linear", begin=0.3, interval=500),
]
