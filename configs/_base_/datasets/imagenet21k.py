# ImageNet-21K (the winter 2021 release has 19,167 classes, the fall 2011 one 21,841) as class folders. ImageNet-1K's
# validation images have other classes, so that it is trained without validation.
_base_ = "./imagenet.py"

train_dataloader = dict(dataset=dict(data_root="data/imagenet21k"))
val_dataloader = None
val_evaluator = None
test_dataloader = None
test_evaluator = None
