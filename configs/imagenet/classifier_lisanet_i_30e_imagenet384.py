# LiSANet-I, fine-tuned at 384 pixels: the paper has 77.4% top-1 (LiSA journal version, Table 13).
# It does not tell how; this is Swin's fine-tuning: 30 epochs, AdamW 2e-5 per 512 images, decay 1e-8, the augmentation as before.
_base_ = [
    "../_base_/models/image_classifier.py",
    "../_base_/datasets/imagenet_384.py",
    "../_base_/schedules/imagenet_finetune_30e.py",
    "../_base_/runtime_mmpretrain.py",
]

# From the classifier at 224 pixels: tools/train.py CONFIG --pretrained CHECKPOINT
pretrained_by = "classifier_lisanet_i_150e_imagenet.py"

model = dict(
    # The kernels become 24x24; the checkpoint's 14x14 are resampled as they are loaded.
    backbone=dict(type="mmlisa.LiSANet", arch="isotropic", out_indices=[-1], image_size=384),
    head=dict(type="LinearClsHead", in_channels=192),
    train_cfg=dict(augments=[dict(type="Mixup", alpha=0.8), dict(type="CutMix", alpha=1.0)]),
)
