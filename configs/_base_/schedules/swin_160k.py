# Swin's recipe for UperNet on ADE20K: 16 images, AdamW 6e-5, 1500 iterations of warm-up, linear decay, no decay of
# norms and positions, but of the heads' batch norms, as Swin's config names only "norm".
train_cfg = dict(type="IterBasedTrainLoop", max_iters=160000, val_interval=16000)
val_cfg = dict(type="ValLoop")
test_cfg = dict(type="TestLoop")
param_scheduler = [
    dict(type="LinearLR", start_factor=1e-6, begin=0, end=1500, by_epoch=False),
    dict(type="PolyLR", power=1.0, begin=1500, end=160000, eta_min=0.0, by_epoch=False),
]
optim_wrapper = dict(
    type="OptimWrapper",
    optimizer=dict(type="AdamW", lr=6e-5, betas=(0.9, 0.999), weight_decay=0.01),
    paramwise_cfg=dict(
        norm_decay_mult=0.0,
        custom_keys={
            "position_embedding": dict(decay_mult=0.0),
            "relative_position_bias_table": dict(decay_mult=0.0),
            "decode_head.": dict(decay_mult=1.0),
            "auxiliary_head.": dict(decay_mult=1.0),
        },
    ),
)
auto_scale_lr = dict(enable=False, base_batch_size=16)
