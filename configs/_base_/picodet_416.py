# The same at 416 x 416: 352 to 480 in training.
_base_ = "./picodet_320.py"

size, largest = (416, 416), (480, 480)
train_pipeline = _base_.train_pipeline
train_pipeline[3].scale = largest
test_pipeline = _base_.test_pipeline
test_pipeline[1].scale = size
model = dict(
    data_preprocessor=dict(
        batch_augments=[dict(type="BatchSyncRandomResize", random_size_range=(352, 480), interval=1)]
    )
)
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
