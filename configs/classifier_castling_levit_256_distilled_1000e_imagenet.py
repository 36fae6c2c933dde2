# The same, distilled from a teacher with 85.5% top-1, as the paper trains (it does not say which): name its config and weights.
_base_ = "./classifier_castling_levit_256_1000e_imagenet.py"

model = dict(
    type="mmlisa.DistilledClassifier",
    teacher=dict(
        type="ImageClassifier",
        backbone=dict(type="SwinTransformer", arch="base", img_size=224),
        neck=dict(type="GlobalAveragePooling"),
        head=dict(type="LinearClsHead", num_classes=1000, in_channels=1024),
    ),
    teacher_checkpoint="teacher_in1k.pth",
)
