# Fine-tuning of a trained classifier: 30 epochs, cosine; AdamW 2e-5 per 1024 images, next to no weight decay (Swin).
train_cfg = dict(by_epoch=True, max_epochs=30, val_interval=1)
val_cfg = dict()
test_cfg = dict()
param_scheduler = [
    dict(type="LinearLR", start_factor=1e-2, by_epoch=True, begin=0, end=5, convert_to_iter_based=True),
    dict(type="CosineAnnealingLR", eta_min=2e-7, by_epoch=True, begin=5, end=30),
]
optim_wrapper = dict(
    type="OptimWrapper",
    optimizer=dict(type="AdamW", lr=2e-5, weight_decay=1e-8, eps=1e-8, betas=(0.9, 0.999)),
    clip_grad=dict(max_norm=5.0),
)
auto_scale_lr = dict(enable=False, base_batch_size=1024)
