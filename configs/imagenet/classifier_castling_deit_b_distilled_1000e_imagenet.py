# Castling-DeiT-B, distilled, ImageNet-1K, 1000 epochs: the paper has 84.2% top-1 (Castling-ViT, Table 2). A second head on
# the class token learns from the teacher, where DeiT has a distillation token; the printed parameters count one head.
_base_ = ["./classifier_castling_deit_b_1000e_imagenet.py", "../_base_/distillation.py"]

model = dict(
    **_base_.distillation,
    distill_head=dict(type="LinearClsHead", num_classes=1000, in_channels=768),
)
