# HyLiSANet-S, from ImageNet-21K to ImageNet-1K: the paper has 84.3% top-1 (LiSA journal version, Table 6; appendix
# A.2: 30 epochs, AdamW 5e-5 at 512 images, weight decay 1e-8). Mixup and CutMix are off, as in ConvNeXt's fine-
# tuning, whose are the rate that falls from layer to layer and the small start of the head.
_base_ = [
    "../_base_/models/image_classifier.py",
    "../_base_/datasets/imagenet.py",
    "../_base_/schedules/imagenet_finetune_30e.py",
    "../_base_/runtime_mmpretrain.py",
]

# From ImageNet-21K weights: tools/train.py CONFIG --pretrained CHECKPOINT
pretrained_by = "classifier_hylisanet_s_90e_imagenet21k.py"

model = dict(
    backbone=dict(
        type="mmlisa.LiSANet",
        arch="hybrid-small",
        out_indices=[-1],
        drop_path_rate=0.1,
    ),
    head=dict(in_channels=384, init_scale=0.001),
)
param_scheduler = [
    dict(type="CosineAnnealingLR", eta_min=1e-6, by_epoch=True, begin=0, end=30, convert_to_iter_based=True)
]
optim_wrapper = dict(
    constructor="mmlisa.LayerwiseOptimWrapperConstructor",
    optimizer=dict(lr=5e-5),
    paramwise_cfg=dict(layer_decay=0.8, layer_groups="convnext"),
    clip_grad=None,
)
auto_scale_lr = dict(base_batch_size=512)
