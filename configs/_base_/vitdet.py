# Mask R-CNN on a plain backbone (Li et al., "Exploring Plain Vision Transformer Backbones for Object Detection", appendix A.2):
# 1024x1024 with large-scale jitter, 100 epochs of 64 images, AdamW 1e-4, weight decay 0.1, warm-up of 250 iterations, a tenth of
# the rate after 8/9 and 26/27 of the training. A config adds its backbone and the layer decay.
_base_ = [
    "./models/mask_rcnn.py",
    "mmdet::common/lsj-100e_coco-instance.py",  # each of its 25 epochs goes through the images four times
]

model = dict(
    data_preprocessor=dict(pad_size_divisor=1024),  # every image becomes 1024x1024, as the positions are
    neck=dict(_delete_=True, type="mmlisa.SimpleFeaturePyramid", out_channels=256),
    rpn_head=dict(num_convs=2),
    roi_head=dict(
        bbox_head=dict(
            type="Shared4Conv1FCBBoxHead", conv_out_channels=256, norm_cfg=dict(type="mmpretrain.LN2d", eps=1e-6)
        ),
        mask_head=dict(norm_cfg=dict(type="mmpretrain.LN2d", eps=1e-6)),
    ),
)
test_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="Resize", scale=(1024, 1024), keep_ratio=True),
    dict(type="LoadAnnotations", with_bbox=True, with_mask=True),
    dict(type="PackDetInputs", meta_keys=("img_id", "img_path", "ori_shape", "img_shape", "scale_factor")),
]
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
optim_wrapper = dict(
    _delete_=True,
    type="OptimWrapper",
    constructor="mmlisa.LayerwiseOptimWrapperConstructor",
    optimizer=dict(type="AdamW", lr=1e-4, betas=(0.9, 0.999), weight_decay=0.1),
    paramwise_cfg=dict(
        norm_decay_mult=0.0,
        custom_keys={"stem.position": dict(decay_mult=0.0), "cls_token": dict(decay_mult=0.0)},
    ),
)
param_scheduler = [
    dict(type="LinearLR", start_factor=0.001, by_epoch=False, begin=0, end=250),
    dict(type="MultiStepLR", begin=0, end=25, by_epoch=True, milestones=[22, 24], gamma=0.1),
]
val_evaluator = dict(type="mmlisa.CocoMetric")
test_evaluator = val_evaluator
custom_hooks = [
    dict(type="mmlisa.FiniteLossHook"),
    dict(type="mmlisa.TrainingCurvesHook"),
]
