# Castling-ViT's teacher has 85.5% top-1, and no name: ResNet-152 stands in for it; name yours and its weights.
distillation = dict(
    type="mmlisa.DistilledClassifier",
    teacher=dict(
        type="ImageClassifier",
        backbone=dict(type="ResNet", depth=152),
        neck=dict(type="GlobalAveragePooling"),
        head=dict(type="LinearClsHead", num_classes=1000, in_channels=2048),
    ),
    teacher_checkpoint="teacher_in1k.pth",
)
