# HyLiSANet-S, Kinetics-400, 110 epochs from ImageNet-1K weights: the paper has 81.1% top-1 with 16 x 1 x 4 views (LiSA
# journal version, Table 8; appendix A.2). Mixup, CutMix and label smoothing: UniFormer.
# The weights to start from are made of the image classifier's:
#   mmlisa convert IMAGE.pth work_dirs/hylisanet_s_inflated.pth \
#       --inflate configs/video/classifier_hylisanet_s_110e_kinetics400.py
_base_ = [
    "../_base_/models/video_classifier.py",
    "../_base_/datasets/kinetics400.py",
    "../_base_/schedules/video_110e.py",
    "../_base_/runtime_mmpretrain.py",
]

model = dict(
    data_preprocessor=dict(num_classes=400),
    backbone=dict(
        type="mmlisa.LiSANet", arch="hybrid-small", image_size=(16, 224, 224), out_indices=[-1], drop_path_rate=0.15
    ),
    head=dict(num_classes=400, in_channels=384),
    train_cfg=dict(augments=[dict(type="Mixup", alpha=0.8), dict(type="CutMix", alpha=1.0)]),
)
pretrained_by = "classifier_hylisanet_s_300e_imagenet.py"
load_from = "work_dirs/hylisanet_s_inflated.pth"
