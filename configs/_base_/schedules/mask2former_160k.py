# Mask2Former's optimizer for ADE20K: 16 images, AdamW 1e-4, a tenth of it in the backbone, polynomial decay; norms, embeddings
# and positions do not decay.
train_cfg = dict(type="IterBasedTrainLoop", max_iters=160000, val_interval=16000)
val_cfg = dict(type="ValLoop")
test_cfg = dict(type="TestLoop")
param_scheduler = [dict(type="PolyLR", power=0.9, begin=0, end=160000, eta_min=0.0, by_epoch=False)]
_no_decay = dict(decay_mult=0.0)
optim_wrapper = dict(
    type="OptimWrapper",
    constructor="mmlisa.LayerwiseOptimWrapperConstructor",
    optimizer=dict(type="AdamW", lr=1e-4, betas=(0.9, 0.999), weight_decay=0.05),
    clip_grad=dict(max_norm=0.01, norm_type=2),
    paramwise_cfg=dict(
        norm_decay_mult=0.0,
        lr_mults={"backbone": 0.1},
        custom_keys={
            "query_embed": _no_decay,
            "query_feat": _no_decay,
            "level_embed": _no_decay,
            "level_encoding": _no_decay,
            "backbone.stem.position": _no_decay,
            "backbone.stem.cls_token": _no_decay,
        },
    ),
)
auto_scale_lr = dict(enable=False, base_batch_size=16)
