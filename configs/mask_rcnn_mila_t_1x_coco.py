# Mask R-CNN, MILA-T, 1x: the paper has box AP 46.8, mask AP 42.1.
_base_ = "./_base_/mask_rcnn_conv_pyramid.py"

model = dict(
    backbone=dict(
        type="mmlisa.MILA",
        arch="tiny",
        drop_path_rate=0.1,
        # The authors' classifier, downloaded by hand (docs/published_weights.md):
        # init_cfg=dict(type="mmlisa.PublishedWeights", source="data/MLLA_T.pth"),
    ),
    neck=dict(in_channels=[64, 128, 256, 512]),
)
