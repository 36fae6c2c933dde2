# HyLiSANet-S, ImageNet-1K, 300 epochs: the paper has 83.7% top-1 (LiSA journal version, Table 5; appendix A.2). The
# head has a hidden layer of 4C, Table 11 a linear one; only so do the parameters agree. The convolutional block's 7x7
# and expansion 2 are fitted: they agree with the printed FLOPs. The stochastic depth of 0.1 is LiSANet-S's.
_base_ = [
    "../_base_/models/image_classifier.py",
    "../_base_/datasets/imagenet.py",
    "../_base_/schedules/imagenet_300e.py",
    "../_base_/runtime_mmpretrain.py",
]

model = dict(
    backbone=dict(type="mmlisa.LiSANet", arch="hybrid-small", out_indices=[-1], drop_path_rate=0.1),
    head=dict(in_channels=384),
    train_cfg=dict(augments=[dict(type="Mixup", alpha=0.8), dict(type="CutMix", alpha=1.0)]),
)
train_dataloader = dict(sampler=dict(type="RepeatAugSampler", shuffle=True, _delete_=True))
