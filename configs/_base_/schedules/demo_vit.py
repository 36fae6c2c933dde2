# The demo's schedule for a plain ViT that starts from trained weights: a smaller rate, which decays from block to block.
_base_ = "./demo.py"

_no_decay = dict(decay_mult=0.0)
optim_wrapper = dict(
    constructor="mmlisa.LayerwiseOptimWrapperConstructor",
    optimizer=dict(lr=5e-4),
    paramwise_cfg=dict(
        layer_decay=0.75,
        custom_keys={
            "stem.position": _no_decay,
            "cls_token": _no_decay,
            "reg_token": _no_decay,
            "gamma": _no_decay,
        },
    ),
)
