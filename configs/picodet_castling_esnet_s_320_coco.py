# PicoDet, Castling-ESNet-ViT-S, 320 x 320: the paper has AP 28.1 with 3.25 M parameters and 0.62 G MACs (Castling-ViT, Table 3).
_base_ = "./_base_/picodet_320.py"

model = dict(
    backbone=dict(
        type="mmlisa.CastlingESNetViT",
        arch="small",
        attention=dict(type="LinearAngularAttention", pooled=True, aux=True, epsilon=0.02),
        # The paper starts from an ImageNet classifier trained by LeViT's recipe:
        # init_cfg=dict(type="Pretrained", checkpoint="castling_esnet_s_in1k.pth", prefix="backbone."),
    ),
    neck=dict(type="mmlisa.CSPPAN", in_channels=[96, 192, 384], out_channels=96),
    bbox_head=dict(in_channels=96, stacked_convs=2),
)
custom_hooks = [*_base_.custom_hooks, dict(type="mmlisa.CastlingHook")]
