_base_ = "./imagenet_384.py"

_train, _test = _base_.train_pipeline, _base_.test_pipeline
train_pipeline = [_train[0], dict(_train[1], scale=448), *_train[2:]]
test_pipeline = [_test[0], dict(_test[1], scale=(448, 448)), *_test[2:]]
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
