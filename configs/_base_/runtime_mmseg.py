_base_ = "./default_runtime.py"

default_scope = "mmseg"
# Iterations, not epochs.
default_hooks = dict(
    logger=dict(log_metric_by_epoch=False),
    checkpoint=dict(by_epoch=False, interval=8000, save_best="mIoU"),
    visualization=dict(type="mmlisa.OverlayHook", interval=500),
)
log_processor = dict(by_epoch=False)
visualizer = dict(type="SegLocalVisualizer", vis_backends=_base_.vis_backends, alpha=0.6)
