# Plain ViT-T/16 with interactive attention, fine-tuned at 896 pixels: the paper has 79.4% top-1 (iViT, Tables 4 and 9).
_base_ = [
    "../_base_/models/image_classifier.py",
    "../_base_/datasets/imagenet_896.py",
    "../_base_/schedules/vit_finetune_30e.py",
    "../_base_/runtime_mmpretrain.py",
]

# From the classifier at 224 pixels: tools/train.py CONFIG --pretrained CHECKPOINT
pretrained_by = "classifier_vit_t16_interactive_300e_imagenet.py"

model = dict(
    # The positions are resized to this grid once, as the 224-pixel classifier is loaded.
    backbone=dict(type="mmlisa.InteractiveViT", arch="tiny-16", image_size=896, drop_path_rate=0.1),
    head=dict(type="LinearClsHead", in_channels=192),
    train_cfg=dict(augments=[dict(type="Mixup", alpha=0.8), dict(type="CutMix", alpha=1.0)]),
)
