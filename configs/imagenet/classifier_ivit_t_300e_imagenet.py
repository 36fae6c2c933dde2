# iViT-T, ImageNet-1K, 300 epochs: the paper has 83.6% top-1 (iViT, Tables 5 and 9). The layout and the test crop of 1.0
# are CAFormer's. The paper's network has 1.15 M parameters more than its equations give, which is unexplained.
_base_ = [
    "../_base_/models/image_classifier.py",
    "../_base_/datasets/imagenet_uncropped.py",
    "../_base_/schedules/imagenet_300e.py",
    "../_base_/runtime_mmpretrain.py",
]

model = dict(
    backbone=dict(type="mmlisa.iViT", arch="tiny", out_indices=[-1], output_norm=False, drop_path_rate=0.15),
    head=dict(in_channels=512, pre_norm=True, activation="SquaredReLU"),
    train_cfg=dict(augments=[dict(type="Mixup", alpha=0.8), dict(type="CutMix", alpha=1.0)]),
)
# LAMB clips the gradient of all parameters together to a norm of 1 by itself.
optim_wrapper = dict(optimizer=dict(_delete_=True, type="mmlisa.Lamb", lr=8e-3, weight_decay=0.05), clip_grad=None)
auto_scale_lr = dict(base_batch_size=4096)
