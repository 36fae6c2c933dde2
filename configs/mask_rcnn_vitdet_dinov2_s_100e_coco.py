# Mask R-CNN as ViTDet, DINOv2-S, 100 epochs. Ours: ViTDet's recipe with another backbone. DINOv2's patches of 14 pixels are
# resampled to 16, so that the maps have the strides of the anchors; its positions stay those of 37x37 patches.
_base_ = "./_base_/vitdet.py"

model = dict(
    backbone=dict(
        type="mmlisa.DINOv2",
        arch=dict(base="small", patch_size=16, image_size=592),
        drop_path_rate=0.1,
        init_cfg=dict(
            type="mmlisa.PublishedWeights", source="timm:vit_small_patch14_dinov2.lvd142m", resample_patches=True
        ),
    ),
    neck=dict(in_channels=384),
)
optim_wrapper = dict(paramwise_cfg=dict(layer_decay=0.7, custom_keys={"gamma": dict(decay_mult=0.0)}))
