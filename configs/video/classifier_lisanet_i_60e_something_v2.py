# LiSANet-I, Something-Something V2, 60 epochs from scratch: the paper has 38.1% top-1 (LiSA journal version, Table 14;
# appendix A.2: AdamW, 2e-4 per 32 videos, 5 epochs of warm-up). Without a position embedding, as its FLOPs say. The
# augmentation, which the paper leaves to three other papers, is that of its Kinetics recipe; no stochastic depth, as for
# its isotropic network on images.
_base_ = [
    "../_base_/models/video_classifier.py",
    "../_base_/datasets/something_v2.py",
    "../_base_/schedules/video_110e.py",
    "../_base_/runtime_mmpretrain.py",
]

train_cfg = dict(max_epochs=60)
param_scheduler = [
    dict(type="LinearLR", start_factor=0.01, by_epoch=True, begin=0, end=5, convert_to_iter_based=True),
    dict(type="CosineAnnealingLR", eta_min=1e-6, by_epoch=True, begin=5, end=60, convert_to_iter_based=True),
]
optim_wrapper = dict(optimizer=dict(lr=2e-4))
model = dict(
    data_preprocessor=dict(num_classes=174),
    backbone=dict(
        type="mmlisa.LiSANet",
        arch=dict(base="isotropic", position=None),
        image_size=(8, 224, 224),
        out_indices=[-1],
    ),
    head=dict(type="LinearClsHead", num_classes=174, in_channels=192),
    train_cfg=dict(augments=[dict(type="Mixup", alpha=0.8), dict(type="CutMix", alpha=1.0)]),
)
