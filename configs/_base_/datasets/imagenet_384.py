# Fine-tuning at 384 pixels: the whole image is seen in the test, as in Swin's evaluation.
_base_ = "./imagenet.py"

_train, _test = _base_.train_pipeline, _base_.test_pipeline
train_pipeline = [_train[0], dict(_train[1], scale=384), *_train[2:]]
test_pipeline = [
    _test[0],
    dict(type="Resize", scale=(384, 384), backend="pillow", interpolation="bicubic"),
    dict(type="PackInputs"),
]
train_dataloader = dict(batch_size=64, dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(batch_size=64, dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
