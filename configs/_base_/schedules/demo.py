# A few minutes on two CPU cores, from scratch: 400 iterations, evaluation half-way and at the end.
train_cfg = dict(type="IterBasedTrainLoop", max_iters=400, val_interval=200)
val_cfg = dict(type="ValLoop")
test_cfg = dict(type="TestLoop")
param_scheduler = [
    dict(type="LinearLR", start_factor=0.01, by_epoch=False, begin=0, end=30),
    dict(type="CosineAnnealingLR", by_epoch=False, begin=30, end=400, eta_min=1e-5),
]
optim_wrapper = dict(
    type="OptimWrapper",
    optimizer=dict(type="AdamW", lr=1.5e-3, weight_decay=0.05),
    paramwise_cfg=dict(norm_decay_mult=0.0),
    clip_grad=dict(max_norm=5.0),
)
randomness = dict(seed=0)
