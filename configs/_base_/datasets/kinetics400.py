# Kinetics-400: data/kinetics400/{train,val}.txt list "path frames label", the paths being relative to data/kinetics400.
# Clips of 16 frames, every fourth one. The augmentation is UniFormer's, whose setup the paper follows: its code shows each
# video twice per batch, which is num_clips=2.
_rgb_mean, _rgb_std = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]
augmentation = [
    dict(
        type="RandAugment",
        policies="timm_increasing",
        num_policies=4,
        total_level=10,
        magnitude_level=7,
        magnitude_std=0.5,
        hparams=dict(pad_val=[round(x) for x in _rgb_mean[::-1]], interpolation="bicubic"),
    ),
    dict(
        type="RandomErasing",
        erase_prob=0.25,
        mode="rand",
        min_area_ratio=0.02,
        max_area_ratio=1 / 3,
        fill_color=_rgb_mean[::-1],
        fill_std=_rgb_std[::-1],
    ),
]
_crop = [
    dict(type="ResizeEdge", scale=256, edge="short"),
    dict(type="RandomResizedCrop", scale=224, interpolation="bicubic"),
]
train_pipeline = [
    dict(type="mmlisa.LoadClips", length=16, stride=4, num_clips=2, random=True),
    dict(
        type="mmlisa.PerFrame",
        transforms=[*_crop, dict(type="RandomFlip", prob=0.5, direction="horizontal"), *augmentation],
    ),
    dict(type="mmlisa.PackClips"),
]
test_frames = [dict(type="ResizeEdge", scale=256, edge="short"), dict(type="CenterCrop", crop_size=224)]
test_pipeline = [
    dict(type="mmlisa.LoadClips", length=16, stride=4, num_clips=4),
    dict(type="mmlisa.PerFrame", transforms=test_frames),
    dict(type="mmlisa.PackClips"),
]
train_dataloader = dict(
    batch_size=8,
    num_workers=8,
    persistent_workers=True,
    sampler=dict(type="DefaultSampler", shuffle=True),
    dataset=dict(
        type="mmlisa.VideoDataset", data_root="data/kinetics400", ann_file="train.txt", pipeline=train_pipeline
    ),
)
val_dataloader = dict(
    batch_size=8,
    num_workers=8,
    persistent_workers=True,
    sampler=dict(type="DefaultSampler", shuffle=False),
    dataset=dict(
        type="mmlisa.VideoDataset",
        data_root="data/kinetics400",
        ann_file="val.txt",
        pipeline=test_pipeline,
        test_mode=True,
    ),
)
test_dataloader = val_dataloader
val_evaluator = dict(type="Accuracy", topk=(1, 5))
test_evaluator = val_evaluator
