# FLatten-Swin-B at 384 pixels, 30 epochs from the 224-pixel classifier: the paper has 85.0% top-1 (FLatten, Table 8).
_base_ = [
    "../_base_/models/image_classifier.py",
    "../_base_/datasets/imagenet_384.py",
    "../_base_/schedules/imagenet_finetune_30e.py",
    "../_base_/runtime_mmpretrain.py",
]

# From the classifier at 224 pixels: tools/train.py CONFIG --pretrained CHECKPOINT
pretrained_by = "classifier_flatten_swin_b_300e_imagenet.py"

model = dict(
    backbone=dict(type="mmlisa.FLattenSwin", arch="base-384", out_indices=[-1], drop_path_rate=0.5),
    head=dict(type="LinearClsHead", in_channels=1024),
    train_cfg=dict(augments=[dict(type="Mixup", alpha=0.8), dict(type="CutMix", alpha=1.0)]),
)
optim_wrapper = dict(paramwise_cfg=dict(custom_keys={"relative_position_bias_table": dict(decay_mult=0.0)}))
