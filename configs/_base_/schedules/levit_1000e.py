# LeViT's recipe for ImageNet, from its code: AdamW 5e-4 per 512 images at 8 x 256, weight decay 0.025, adaptive clipping at 0.01,
# 5 epochs of warm-up, a cosine over 1000 epochs, weights averaged with 0.99996. MMEngine tests and saves the averaged weights,
# the code tests the others.
train_cfg = dict(by_epoch=True, max_epochs=1000, val_interval=10)
val_cfg = dict()
test_cfg = dict()
param_scheduler = [
    dict(type="LinearLR", start_factor=5e-4, by_epoch=True, begin=0, end=5, convert_to_iter_based=True),
    dict(type="CosineAnnealingLR", eta_min=1e-5, by_epoch=True, begin=0, end=1000),
]
optim_wrapper = dict(
    type="mmlisa.AdaptiveClipOptimWrapper",
    optimizer=dict(type="AdamW", lr=5e-4 * 2048 / 512, weight_decay=0.025),
    paramwise_cfg=dict(norm_decay_mult=0.0, bias_decay_mult=0.0, flat_decay_mult=0.0),
    clip_grad=dict(clip_factor=0.01),
)
auto_scale_lr = dict(enable=False, base_batch_size=2048)
