# FLatten-CSwin-B at 384 pixels, 30 epochs from the 224-pixel classifier: the paper has 85.5% top-1 (FLatten, Table 8).
_base_ = [
    "../_base_/models/image_classifier.py",
    "../_base_/datasets/imagenet_384_cropped.py",
    "../_base_/schedules/imagenet_finetune_30e.py",
    "../_base_/runtime_mmpretrain.py",
]

# From the classifier at 224 pixels: tools/train.py CONFIG --pretrained CHECKPOINT
pretrained_by = "classifier_flatten_cswin_b_300e_imagenet.py"

model = dict(
    backbone=dict(type="mmlisa.FLattenCSwin", arch="base-384", out_indices=[-1], drop_path_rate=0.7),
    head=dict(type="LinearClsHead", in_channels=768),
    train_cfg=dict(augments=[dict(type="Mixup", alpha=0.8), dict(type="CutMix", alpha=1.0)]),
)
# The authors' code: 20 epochs from 5e-6 per 512 images down to a tenth, without warm-up, and ten more at the end.
param_scheduler = [
    dict(
        type="CosineAnnealingLR",
        eta_min=5e-7 * 1024 / 512,
        by_epoch=True,
        begin=0,
        end=20,
        convert_to_iter_based=True,
    )
]
optim_wrapper = dict(optimizer=dict(lr=5e-6 * 1024 / 512), clip_grad=None)
# The decay of the authors' 256 images.
custom_hooks = [*_base_.custom_hooks, dict(type="EMAHook", momentum=1 - 0.99982 ** (1024 / 256))]
