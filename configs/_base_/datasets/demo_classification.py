# The objects of the offline demo data, one per image of 64 pixels (made into data/demo/cls/ on first use).
train_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="RandomResizedCrop", scale=64, crop_ratio_range=(0.6, 1.0)),
    dict(type="RandomFlip", prob=0.5, direction="horizontal"),
    dict(type="PackInputs"),
]
test_pipeline = [dict(type="LoadImageFromFile"), dict(type="PackInputs")]
train_dataloader = dict(
    batch_size=32,
    num_workers=0,
    sampler=dict(type="InfiniteSampler", shuffle=True),
    dataset=dict(
        type="mmlisa.DemoClsDataset", data_root="data/demo/", data_prefix="cls/train", pipeline=train_pipeline
    ),
)
val_dataloader = dict(
    batch_size=16,
    num_workers=0,
    sampler=dict(type="DefaultSampler", shuffle=False),
    dataset=dict(type="mmlisa.DemoClsDataset", data_root="data/demo/", data_prefix="cls/val", pipeline=test_pipeline),
)
test_dataloader = val_dataloader
val_evaluator = dict(type="Accuracy", topk=(1,))
test_evaluator = val_evaluator
auto_scale_lr = dict(enable=False, base_batch_size=32)
