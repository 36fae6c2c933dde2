# A narrow HyLiSANet tells how an object moves in the offline demo clips, from scratch, in minutes on two CPU cores.
# Half of the classes are the other half played backwards, so it must see the order of the frames.
_base_ = [
    "./_base_/models/video_classifier.py",
    "./_base_/schedules/demo.py",
    "./_base_/runtime_mmpretrain_iter.py",
]

model = dict(
    data_preprocessor=dict(num_classes=8),
    backbone=dict(
        type="mmlisa.LiSANet",
        arch=dict(base="hybrid-small", depths=(1, 1, 1, 1), channels=(16, 32, 48, 64), num_heads=(1, 2, 3, 4)),
        image_size=(8, 48, 48),
        out_indices=[-1],
    ),
    head=dict(num_classes=8, in_channels=64),
)
train_pipeline = [
    dict(type="mmlisa.LoadClips", length=8, random=True),
    dict(type="mmlisa.PerFrame", transforms=[dict(type="RandomCrop", crop_size=48)]),
    dict(type="mmlisa.PackClips"),
]
test_pipeline = [
    dict(type="mmlisa.LoadClips", length=8),
    dict(type="mmlisa.PerFrame", transforms=[dict(type="CenterCrop", crop_size=48)]),
    dict(type="mmlisa.PackClips"),
]
# More clips than the demo on images sees, so that none of them is learned by heart.
train_cfg = dict(max_iters=500, val_interval=250)
param_scheduler = [
    dict(type="LinearLR", start_factor=0.01, by_epoch=False, begin=0, end=30),
    dict(type="CosineAnnealingLR", by_epoch=False, begin=30, end=500, eta_min=1e-5),
]
train_dataloader = dict(
    batch_size=32,
    num_workers=0,
    sampler=dict(type="InfiniteSampler", shuffle=True),
    dataset=dict(
        type="mmlisa.DemoVideoDataset", data_root="data/demo_video", ann_file="train.txt", pipeline=train_pipeline
    ),
)
val_dataloader = dict(
    batch_size=32,
    num_workers=0,
    sampler=dict(type="DefaultSampler", shuffle=False),
    dataset=dict(
        type="mmlisa.DemoVideoDataset",
        data_root="data/demo_video",
        ann_file="val.txt",
        pipeline=test_pipeline,
        test_mode=True,
    ),
)
test_dataloader = val_dataloader
val_evaluator = dict(type="Accuracy", topk=(1,))
test_evaluator = val_evaluator
default_hooks = dict(visualization=dict(type="mmlisa.VideoOverlayHook"))
auto_scale_lr = dict(enable=False, base_batch_size=32)
