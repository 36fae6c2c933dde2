# Swin's fine-tuning at a higher resolution: 30 epochs, a cosine over iterations, AdamW 2e-5 per 512 images, weight decay 1e-8.
_base_ = "./imagenet_300e.py"

train_cfg = dict(max_epochs=30, val_interval=1)
param_scheduler = [
    dict(type="LinearLR", start_factor=1e-3, by_epoch=True, begin=0, end=5, convert_to_iter_based=True),
    dict(type="CosineAnnealingLR", eta_min=4e-7, by_epoch=True, begin=0, end=30, convert_to_iter_based=True),
]
optim_wrapper = dict(optimizer=dict(lr=2e-5 * 1024 / 512, weight_decay=1e-8))
