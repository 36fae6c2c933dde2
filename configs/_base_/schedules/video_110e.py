# LiSA, appendix A.2: AdamW, 1e-4 per 32 videos, 110 epochs, 10 of them warm-up, cosine. First and last rate: UniFormer.
train_cfg = dict(by_epoch=True, max_epochs=110, val_interval=10)
val_cfg = dict()
test_cfg = dict()
param_scheduler = [
    dict(type="LinearLR", start_factor=0.01, by_epoch=True, begin=0, end=10, convert_to_iter_based=True),
    dict(type="CosineAnnealingLR", eta_min=1e-6, by_epoch=True, begin=10, end=110, convert_to_iter_based=True),
]
# No decay of what has one axis: UniFormer.
optim_wrapper = dict(
    type="OptimWrapper",
    optimizer=dict(type="AdamW", lr=1e-4, weight_decay=0.05),
    paramwise_cfg=dict(
        norm_decay_mult=0.0,
        bias_decay_mult=0.0,
        flat_decay_mult=0.0,
        custom_keys={"attn.bias": dict(decay_mult=1.0)},  # LiSA's B, which is a projection
    ),
)
auto_scale_lr = dict(enable=False, base_batch_size=32)
