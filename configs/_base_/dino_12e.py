# DINO with four scales, 12 epochs, as mmdet trains it; a config adds its backbone and the neck's in_channels.
_base_ = "mmdet::dino/dino-4scale_r50_8xb2-12e_coco.py"

model = dict(backbone=dict(_delete_=True))
val_evaluator = dict(type="mmlisa.CocoMetric")
test_evaluator = val_evaluator
custom_hooks = [
    dict(type="mmlisa.FiniteLossHook"),
    dict(type="mmlisa.TrainingCurvesHook"),
]
