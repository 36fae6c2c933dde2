# The recipe of DeiT and Swin: AdamW, 5e-4 per 512 images, 300 epochs. As in Swin's code, the cosine runs over all epochs, in
# steps of an iteration, and the 20 epochs of warm-up multiply it.
train_cfg = dict(by_epoch=True, max_epochs=300, val_interval=5)
val_cfg = dict()
test_cfg = dict()
param_scheduler = [
    dict(type="LinearLR", start_factor=1e-3, by_epoch=True, begin=0, end=20, convert_to_iter_based=True),
    dict(type="CosineAnnealingLR", eta_min=1e-5, by_epoch=True, begin=0, end=300, convert_to_iter_based=True),
]
optim_wrapper = dict(
    type="OptimWrapper",
    optimizer=dict(type="AdamW", lr=5e-4 * 1024 / 512, weight_decay=0.05, eps=1e-8, betas=(0.9, 0.999)),
    paramwise_cfg=dict(
        norm_decay_mult=0.0,
        bias_decay_mult=0.0,
        flat_decay_mult=0.0,
        custom_keys={
            "position_embedding": dict(decay_mult=0.0),
            "attn.bias": dict(decay_mult=1.0),  # LiSA's B, which is a projection
        },
    ),
    clip_grad=dict(max_norm=5.0),
)
auto_scale_lr = dict(enable=False, base_batch_size=1024)
