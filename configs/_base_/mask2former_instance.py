# Mask2Former for instances, 50 epochs with large-scale jitter, as mmdet trains it with Swin-T; a config adds its backbone and
# the head's in_channels.
_base_ = "mmdet::mask2former/mask2former_swin-t-p4-w7-224_8xb2-lsj-50e_coco.py"

model = dict(backbone=dict(_delete_=True))
# The parameter groups of mmdet's config, which lists Swin's norms by name: a tenth of the rate in the backbone, and no decay of
# norms, positions and queries.
optim_wrapper = dict(
    constructor="mmlisa.LayerwiseOptimWrapperConstructor",
    paramwise_cfg=dict(
        _delete_=True,
        lr_mults=dict(backbone=0.1),
        norm_decay_mult=0.0,
        custom_keys={
            "query_embed": dict(decay_mult=0.0),
            "query_feat": dict(decay_mult=0.0),
            "level_embed": dict(decay_mult=0.0),
            "position_embedding": dict(decay_mult=0.0),
            "relative_position_bias_table": dict(decay_mult=0.0),
        },
    ),
)
# mmdet's config inherits the folders of panoptic maps, which instances do not need.
train_dataloader = dict(dataset=dict(data_prefix=dict(_delete_=True, img="train2017/")))
val_dataloader = dict(dataset=dict(data_prefix=dict(_delete_=True, img="val2017/")))
test_dataloader = val_dataloader
val_evaluator = dict(type="mmlisa.CocoMetric")
test_evaluator = val_evaluator
custom_hooks = [
    dict(type="mmlisa.FiniteLossHook"),
    dict(type="mmlisa.TrainingCurvesHook"),
]
