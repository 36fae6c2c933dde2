# PicoDet on COCO at 320 x 320: squares of one size per batch, 256 to 384 in training, the aspect ratio not kept.
_base_ = [
    "./models/picodet.py",
    "./datasets/coco_instance.py",
    "./schedules/picodet_300e.py",
    "./runtime_mmdet.py",
]

load_and_crop = [
    dict(type="LoadImageFromFile"),
    dict(type="LoadAnnotations", with_bbox=True),
    dict(type="MinIoURandomCrop", min_ious=(0.1, 0.3, 0.5, 0.7, 0.9), min_crop_size=0.3),
]
flip_and_distort = [
    dict(type="RandomFlip", prob=0.5),
    dict(type="PhotoMetricDistortion"),
    dict(type="PackDetInputs"),
]
pack_for_test = [
    dict(type="LoadAnnotations", with_bbox=True),
    dict(type="PackDetInputs", meta_keys=("img_id", "img_path", "ori_shape", "img_shape", "scale_factor")),
]
interpolations = ("nearest", "bilinear", "area", "bicubic", "lanczos")

train_pipeline = [
    *load_and_crop,
    # To the largest size; the batch is scaled down from there to its own.
    dict(
        type="RandomChoice",
        transforms=[[dict(type="Resize", scale=(384, 384), keep_ratio=False, interpolation=i)] for i in interpolations],
    ),
    *flip_and_distort,
]
test_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="Resize", scale=(320, 320), keep_ratio=False, interpolation="bicubic"),
    *pack_for_test,
]
model = dict(
    data_preprocessor=dict(
        batch_augments=[dict(type="BatchSyncRandomResize", random_size_range=(256, 384), interval=1)]
    )
)
train_dataloader = dict(batch_size=80, num_workers=8, batch_sampler=None, dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(batch_size=32, num_workers=4, dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
val_evaluator = dict(metric="bbox")
test_evaluator = val_evaluator
custom_hooks = [
    *_base_.custom_hooks,
    # The average starts again every 40 epochs (Castling-ViT follows PicoDet): the last time at 280, 20 epochs before the end.
    dict(type="mmlisa.CycleEMAHook", cycle=40, decay=0.9998, update_buffers=True, priority=49),
]
