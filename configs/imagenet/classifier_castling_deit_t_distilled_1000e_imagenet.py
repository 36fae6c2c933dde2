# The same, distilled, through a head of its own as DeiT has it (Castling-ViT, Sec. 4.1).
_base_ = ["./classifier_castling_deit_t_1000e_imagenet.py", "../_base_/distillation.py"]

model = dict(
    **_base_.distillation,
    distill_head=dict(type="LinearClsHead", num_classes=1000, in_channels=192),
)
