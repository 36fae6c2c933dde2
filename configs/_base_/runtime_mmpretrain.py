_base_ = "./default_runtime.py"

default_scope = "mmpretrain"
default_hooks = dict(
    checkpoint=dict(save_best="auto"),  # the first metric: top-1
    visualization=dict(type="mmlisa.OverlayHook", interval=5000),
)
visualizer = dict(type="UniversalVisualizer", vis_backends=_base_.vis_backends)
