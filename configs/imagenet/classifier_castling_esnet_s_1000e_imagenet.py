# Castling-ESNet-ViT-S, ImageNet-1K: where PicoDet's backbone starts from, with LeViT's recipe (Castling-ViT, Sec. 4.1).
_base_ = "../_base_/levit_imagenet.py"

model = dict(
    backbone=dict(
        type="mmlisa.CastlingESNetViT",
        arch="small",
        out_indices=[-1],
        attention=dict(type="LinearAngularAttention", pooled=True, aux=True, epsilon=0.02),
    ),
    head=dict(in_channels=384),
    distill_head=dict(in_channels=384),
)
