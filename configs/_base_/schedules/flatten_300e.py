# FLatten on ImageNet: 300 epochs, 20 of them warm-up, as the paper has them; the authors' code trains ten more epochs at the last
# rate, and warms PVT and PVTv2 up for 5. From the code, where the paper is silent: first and last rate, no clipping.
_base_ = "./imagenet_300e.py"

param_scheduler = [
    dict(type="LinearLR", start_factor=2e-3, by_epoch=True, begin=0, end=20, convert_to_iter_based=True),
    dict(
        type="CosineAnnealingLR",
        eta_min=1e-5 * 1024 / 512,
        by_epoch=True,
        begin=0,
        end=300,
        convert_to_iter_based=True,
    ),
]
optim_wrapper = dict(clip_grad=None)
