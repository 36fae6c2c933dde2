# The same, distilled (Castling-ViT, Sec. 4.1).
_base_ = ["./classifier_castling_mvitv2_s_1000e_imagenet.py", "../_base_/distillation.py"]

model = dict(**_base_.distillation)
