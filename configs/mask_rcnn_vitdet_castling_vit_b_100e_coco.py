# Mask R-CNN as ViTDet, Castling-ViT-B, 100 epochs. Ours: ViTDet's recipe with another backbone. In training, the auxiliary branch
# of 4096 tokens takes 3.4 GB per image beside the rest, one layer at a time (computed, not measured).
_base_ = "./_base_/vitdet.py"

# From MAE's weights: tools/train.py CONFIG --pretrained timm:vit_base_patch16_224.mae
model = dict(
    backbone=dict(
        type="mmlisa.CastlingViT",
        arch="base",
        image_size=1024,
        drop_path_rate=0.1,
    ),
    neck=dict(in_channels=768),
)
optim_wrapper = dict(paramwise_cfg=dict(layer_decay=0.7))
custom_hooks = [*_base_.custom_hooks, dict(type="mmlisa.CastlingHook", interval=500)]
