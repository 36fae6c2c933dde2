# DINOv2-S with linear-angular attention learns the features of DINOv2-S from the images of the offline demo data, without their
# labels: first 200 iterations for each attention by itself, then 200 for the maps. It starts from DINOv2's weights:
# `mmlisa train adapt_dinov2_s_demo.py --pretrained timm:vit_small_patch14_dinov2.lvd142m`.
_base_ = ["./_base_/runtime_mmpretrain_iter.py"]

data_root = "data/demo/"
size = 224
network = dict(type="mmlisa.DINOv2", arch="small", out_indices=(2, 5, 8, 11))
weights = dict(type="mmlisa.PublishedWeights", source="timm:vit_small_patch14_dinov2.lvd142m")
model = dict(
    type="mmlisa.Adaptation",
    backbone=dict(attention=dict(type="LinearAngularAttention"), init_cfg=weights, **network),
    teacher=network,
    data_preprocessor=dict(
        type="ClsDataPreprocessor", mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375], to_rgb=True
    ),
)
train_dataloader = dict(
    batch_size=4,
    num_workers=0,
    sampler=dict(type="InfiniteSampler", shuffle=True),
    dataset=dict(
        type="mmlisa.DemoClsDataset",
        data_root=data_root,
        data_prefix="train",
        with_label=False,
        pipeline=[
            dict(type="LoadImageFromFile"),
            dict(type="RandomResizedCrop", scale=size, crop_ratio_range=(0.3, 1.0)),
            dict(type="RandomFlip", prob=0.5, direction="horizontal"),
            dict(type="PackInputs"),
        ],
    ),
)
train_cfg = dict(type="IterBasedTrainLoop", max_iters=400)
# The second stage needs a tenth of the first one's rate, and query, key and value a tenth of the rest's.
param_scheduler = [
    dict(type="CosineAnnealingLR", by_epoch=False, begin=0, end=200, eta_min_ratio=0.1),
    dict(type="CosineAnnealingLR", by_epoch=False, begin=200, end=400, eta_min_ratio=0.001),
]
optim_wrapper = dict(
    type="OptimWrapper",
    optimizer=dict(type="AdamW", lr=2e-3, weight_decay=0.0),
    paramwise_cfg=dict(
        custom_keys={".qkv.": dict(lr_mult=0.1), ".proj.": dict(lr_mult=0.2), "norm1": dict(lr_mult=0.1)}
    ),
    clip_grad=dict(max_norm=5.0),
)
find_unused_parameters = True
auto_scale_lr = dict(enable=False, base_batch_size=4)
randomness = dict(seed=0)
