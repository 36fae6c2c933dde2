# Castling-LeViT-128, distilled, ImageNet-1K, 1000 epochs: the paper has 79.6% top-1 (Castling-ViT, Table 2). As in LeViT, a
# second head learns from the teacher; the printed parameters count one.
_base_ = ["./classifier_castling_levit_128_1000e_imagenet.py", "../_base_/distillation.py"]

model = dict(
    **_base_.distillation,
    distill_head=dict(type="LinearClsHead", num_classes=1000, in_channels=384),
)
