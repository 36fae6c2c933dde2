# Mask R-CNN, H-ViT³-T, 1x: the paper has box AP 47.3, mask AP 42.8. With --amp, as the authors.
_base_ = "./_base_/mask_rcnn_conv_pyramid.py"

# The paper starts from ImageNet weights, this classifier's or the authors': tools/train.py CONFIG --pretrained CHECKPOINT
pretrained_by = "classifier_h_vit3_t_300e_imagenet.py"

model = dict(
    backbone=dict(
        type="mmlisa.HViT3",
        arch="tiny",
        drop_path_rate=0.1,
        with_cp=True,
    ),
    neck=dict(in_channels=[64, 128, 320, 512]),
)
optim_wrapper = dict(optimizer=dict(lr=2e-4))
param_scheduler = [
    dict(type="LinearLR", start_factor=0.001, by_epoch=False, begin=0, end=1000),
    dict(type="MultiStepLR", begin=0, end=12, by_epoch=True, milestones=[8, 11], gamma=0.1),
]
train_dataloader = dict(batch_size=4)
auto_scale_lr = dict(base_batch_size=32)
