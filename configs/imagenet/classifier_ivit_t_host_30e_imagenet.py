# iViT-T from CAFormer-S18's ImageNet weights, its attention replaced; 30 epochs with CAFormer-S18 as the teacher. Ours.
_base_ = [
    "../_base_/models/image_classifier.py",
    "../_base_/datasets/imagenet_uncropped.py",
    "../_base_/schedules/imagenet_finetune_30e.py",
    "../_base_/runtime_mmpretrain.py",
]
_host = "caformer_s18.sail_in1k"

model = dict(
    type="mmlisa.DistilledClassifier",
    teacher=dict(type="TimmClassifier", model_name=_host, pretrained=True),
    backbone=dict(
        type="mmlisa.iViT",
        arch="tiny",
        out_indices=[-1],
        output_norm=False,
        drop_path_rate=0.1,
        init_cfg=dict(type="mmlisa.PublishedWeights", source=f"timm:{_host}"),
    ),
    head=dict(in_channels=512, pre_norm=True, activation="SquaredReLU"),
    train_cfg=dict(augments=[dict(type="Mixup", alpha=0.8), dict(type="CutMix", alpha=1.0)]),
)
optim_wrapper = dict(optimizer=dict(lr=2e-4, weight_decay=0.05))
