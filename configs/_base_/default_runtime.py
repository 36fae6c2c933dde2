# Logs, checkpoints, curves and mmlisa's guards, for all tasks. Recipes of mmdet (DINO, RTMDet, ViTDet, Mask2Former for instances)
# keep mmdet's runtime and add the hooks of `custom_hooks`.
default_hooks = dict(
    timer=dict(type="IterTimerHook"),
    logger=dict(type="LoggerHook", interval=50),
    param_scheduler=dict(type="ParamSchedulerHook"),
    # Two are kept: the older one is removed only after the newer is whole, so a crash while saving loses neither.
    checkpoint=dict(type="CheckpointHook", interval=1, max_keep_ckpts=2),
    sampler_seed=dict(type="DistSamplerSeedHook"),
)
custom_hooks = [
    dict(type="mmlisa.FiniteLossHook"),
    dict(type="mmlisa.TrainingCurvesHook"),
]
env_cfg = dict(
    cudnn_benchmark=False, mp_cfg=dict(mp_start_method="fork", opencv_num_threads=0), dist_cfg=dict(backend="nccl")
)
vis_backends = [dict(type="LocalVisBackend")]
log_processor = dict(type="LogProcessor", window_size=50, by_epoch=True)
log_level = "INFO"
load_from = None
resume = False
