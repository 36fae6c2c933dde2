# FLatten-CSwin on ImageNet-1K. The authors' code averages weights with 0.99984 at 2048 (T) and 1024 images (S), 0.99982 at 512
# (B); here the decays are those of 1024 images. Weight decay: the paper's 0.05, where the code has 0.1 for B.
_base_ = [
    "./models/image_classifier.py",
    "./datasets/imagenet_squashed.py",
    "./schedules/flatten_300e.py",
    "./runtime_mmpretrain.py",
]

model = dict(
    backbone=dict(type="mmlisa.FLattenCSwin", arch="tiny", out_indices=[-1], drop_path_rate=0.2),
    head=dict(type="LinearClsHead", in_channels=512),
    train_cfg=dict(augments=[dict(type="Mixup", alpha=0.8), dict(type="CutMix", alpha=1.0)]),
)
