# For iteration-based training of a few hundred iterations.
_base_ = "./runtime_mmdet.py"

default_hooks = dict(
    checkpoint=dict(by_epoch=False, interval=100),
    logger=dict(interval=25, log_metric_by_epoch=False),
    visualization=dict(interval=10),
)
log_processor = dict(window_size=25, by_epoch=False)
