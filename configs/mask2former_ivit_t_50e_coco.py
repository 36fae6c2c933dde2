# Mask2Former, iViT-T, 50 epochs. Ours: mmdet's recipe with another backbone.
_base_ = "./_base_/mask2former_instance.py"

model = dict(
    backbone=dict(
        type="mmlisa.iViT",
        arch="tiny",
        drop_path_rate=0.3,
        init_cfg=dict(type="mmlisa.PublishedWeights", source="timm:caformer_s18.sail_in1k"),
    ),
    panoptic_head=dict(in_channels=[64, 128, 320, 512]),
)
# CAFormer's scales and the scales of its activation, which are no norms, decay as little as these do.
_flat = {name: dict(decay_mult=0.0) for name in ("res_scale", "act.scale", "act.bias")}
optim_wrapper = dict(paramwise_cfg=dict(custom_keys=_flat))
