# The same at 416 x 416: 352 to 480 in training.
_base_ = "./picodet_320.py"

train_pipeline = [
    *_base_.load_and_crop,
    dict(
        type="RandomChoice",
        transforms=[
            [dict(type="Resize", scale=(480, 480), keep_ratio=False, interpolation=i)] for i in _base_.interpolations
        ],
    ),
    *_base_.flip_and_distort,
]
test_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="Resize", scale=(416, 416), keep_ratio=False, interpolation="bicubic"),
    *_base_.pack_for_test,
]
model = dict(
    data_preprocessor=dict(
        batch_augments=[dict(type="BatchSyncRandomResize", random_size_range=(352, 480), interval=1)]
    )
)
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
