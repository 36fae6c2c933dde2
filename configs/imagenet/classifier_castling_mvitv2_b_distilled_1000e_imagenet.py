# Castling-MViTv2-B, distilled, ImageNet-1K, 1000 epochs: the paper has 85.0% top-1 (Castling-ViT, Table 2). Its only head
# also learns from the teacher.
_base_ = ["./classifier_castling_mvitv2_b_1000e_imagenet.py", "../_base_/distillation.py"]

model = dict(**_base_.distillation)
