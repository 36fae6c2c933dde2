# classifier_dinov2_s_demo.py with DINOv3-S. DINOv3's weights: `--pretrained timm:vit_small_patch16_dinov3.lvd1689m`.
_base_ = "./classifier_dinov2_s_demo.py"

model = dict(backbone=dict(type="mmlisa.DINOv3"))
