_base_ = "./default_runtime.py"

default_scope = "mmdet"
default_hooks = dict(
    checkpoint=dict(save_best="auto"),  # the first metric: the boxes' mAP
    visualization=dict(type="mmlisa.OverlayHook", interval=500),
)
visualizer = dict(type="DetLocalVisualizer", vis_backends=_base_.vis_backends)
