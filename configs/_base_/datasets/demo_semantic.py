# The offline demo data (made into data/demo/ on first use), as semantic segmentation: 8 classes and the background.
crop_size = (192, 192)
train_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="LoadAnnotations"),
    dict(type="RandomResize", scale=(192, 192), ratio_range=(1.0, 1.5), keep_ratio=True),
    dict(type="RandomCrop", crop_size=crop_size, cat_max_ratio=0.95),
    dict(type="RandomFlip", prob=0.5),
    dict(type="PackSegInputs"),
]
test_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="Resize", scale=(192, 192), keep_ratio=True),
    # After the resize: predictions are compared at the annotation's own size.
    dict(type="LoadAnnotations"),
    dict(type="PackSegInputs"),
]
# Data are loaded in the training process: the images are small, and a resumed run repeats the whole one exactly.
train_dataloader = dict(
    batch_size=8,
    num_workers=0,
    sampler=dict(type="InfiniteSampler", shuffle=True),
    dataset=dict(
        type="mmlisa.DemoSegDataset",
        data_root="data/demo/",
        data_prefix=dict(img_path="ade/images/training", seg_map_path="ade/annotations/training"),
        pipeline=train_pipeline,
    ),
)
val_dataloader = dict(
    batch_size=1,
    num_workers=0,
    sampler=dict(type="DefaultSampler", shuffle=False),
    dataset=dict(
        type="mmlisa.DemoSegDataset",
        data_root="data/demo/",
        data_prefix=dict(img_path="ade/images/validation", seg_map_path="ade/annotations/validation"),
        pipeline=test_pipeline,
    ),
)
test_dataloader = val_dataloader
val_evaluator = dict(type="mmlisa.IoUMetric", iou_metrics=["mIoU"])
test_evaluator = val_evaluator
auto_scale_lr = dict(enable=False, base_batch_size=8)
