# FLatten-Swin-T from Swin-T's ImageNet weights, its attention replaced; 30 epochs with Swin-T as the teacher. Ours, no paper's.
_base_ = [
    "../_base_/models/image_classifier.py",
    "../_base_/datasets/imagenet_squashed.py",
    "../_base_/schedules/imagenet_finetune_30e.py",
    "../_base_/runtime_mmpretrain.py",
]
_host = "swin_tiny_patch4_window7_224.ms_in1k"

model = dict(
    type="mmlisa.DistilledClassifier",
    teacher=dict(type="TimmClassifier", model_name=_host, pretrained=True),
    backbone=dict(
        type="mmlisa.FLattenSwin",
        arch="tiny",
        out_indices=[-1],
        drop_path_rate=0.1,
        init_cfg=dict(type="mmlisa.PublishedWeights", source=f"timm:{_host}"),
    ),
    head=dict(type="LinearClsHead", in_channels=768),
    train_cfg=dict(augments=[dict(type="Mixup", alpha=0.8), dict(type="CutMix", alpha=1.0)]),
)
optim_wrapper = dict(
    optimizer=dict(lr=2e-4, weight_decay=0.05),
    paramwise_cfg=dict(custom_keys={"relative_position_bias_table": dict(decay_mult=0.0)}),
)
