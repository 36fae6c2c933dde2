# What FLatten's code has for PVT, PVTv2 and CSwin: Swin's recipe, but down to 1e-5 per 512 images, ten epochs more at that,
# and no clipping.
_base_ = "./imagenet_300e.py"

train_cfg = dict(max_epochs=310)
param_scheduler = [
    dict(type="LinearLR", start_factor=2e-3, by_epoch=True, begin=0, end=20, convert_to_iter_based=True),
    dict(type="CosineAnnealingLR", eta_min=1e-5 * 1024 / 512, by_epoch=True, begin=20, end=300),
]
optim_wrapper = dict(clip_grad=None)
