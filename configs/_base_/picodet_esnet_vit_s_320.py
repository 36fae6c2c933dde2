# PicoDet, ESNet-ViT-S, 320 x 320.
_base_ = "./picodet_320.py"

model = dict(
    backbone=dict(
        type="mmlisa.CastlingESNetViT",
        arch="small",
        attention=dict(type="LinearAngularAttention", pooled=True, aux=False),
    ),
    neck=dict(type="mmlisa.CSPPAN", in_channels=[96, 192, 384], out_channels=96),
    bbox_head=dict(in_channels=96, stacked_convs=2),
)
# All of CSP-PAN decays.
optim_wrapper = dict(paramwise_cfg=dict(custom_keys={"neck.": dict(decay_mult=1.0)}))
