# HyLiSANet-S from what fits of CAFormer-S18's ImageNet weights; 30 epochs with CAFormer-S18 as the teacher. Ours.
# Little of it fits (docs/published_weights.md); the teacher gives the most.
_base_ = [
    "../_base_/models/image_classifier.py",
    "../_base_/datasets/imagenet.py",
    "../_base_/schedules/imagenet_finetune_30e.py",
    "../_base_/runtime_mmpretrain.py",
]
_host = "caformer_s18.sail_in1k"

model = dict(
    type="mmlisa.DistilledClassifier",
    teacher=dict(type="TimmClassifier", model_name=_host, pretrained=True),
    backbone=dict(
        type="mmlisa.LiSANet",
        arch="hybrid-small",
        out_indices=[-1],
        drop_path_rate=0.1,
        init_cfg=dict(type="mmlisa.PublishedWeights", source=f"timm:{_host}"),
    ),
    head=dict(in_channels=384),
    train_cfg=dict(augments=[dict(type="Mixup", alpha=0.8), dict(type="CutMix", alpha=1.0)]),
)
optim_wrapper = dict(optimizer=dict(lr=2e-4, weight_decay=0.05))
