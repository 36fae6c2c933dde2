# HyLiSANet-S, from ImageNet-21K to ImageNet-1K: the paper has 84.3% top-1 (LiSA journal version, Table 6; appendix
# A.2: 30 epochs, AdamW 5e-5 at 512 images, weight decay 1e-8). Mixup and CutMix are off, as in ConvNeXt's fine-
# tuning, whose are the rate that falls from layer to layer and the small start of the head.
_base_ = [
    "../_base_/models/image_classifier.py",
    "../_base_/datasets/imagenet.py",
    "../_base_/schedules/imagenet_finetune_30e.py",
    "../_base_/runtime_mmpretrain.py",
]

model = dict(
    backbone=dict(
        type="mmlisa.LiSANet",
        arch="hybrid-small",
        out_indices=[-1],
        drop_path_rate=0.1,
        # The ImageNet-21K classifier:
        # init_cfg=dict(type="Pretrained", checkpoint="hylisanet_s_in21k.pth", prefix="backbone."),
    ),
    head=dict(in_channels=384, init_scale=0.001),
)
param_scheduler = [dict(type="CosineAnnealingLR", eta_min=1e-6, by_epoch=True, begin=0, end=30)]
optim_wrapper = dict(
    constructor="mmlisa.LayerwiseOptimWrapperConstructor",
    optimizer=dict(lr=5e-5),
    paramwise_cfg=dict(layer_decay=0.8, layer_groups="convnext"),
    clip_grad=None,
)
auto_scale_lr = dict(base_batch_size=512)
