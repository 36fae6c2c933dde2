# upernet_dinov2_s_demo.py with DINOv3-S. DINOv3's weights: `--pretrained timm:vit_small_patch16_dinov3.lvd1689m`.
_base_ = "./upernet_dinov2_s_demo.py"

model = dict(
    data_preprocessor=dict(size=(192, 192), test_cfg=dict(size_divisor=32)),
    backbone=dict(type="mmlisa.DINOv3"),
)
