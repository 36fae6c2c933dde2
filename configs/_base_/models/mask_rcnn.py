# Mask R-CNN with FPN as mmdet keeps it; a config adds its backbone and the FPN's in_channels.
_base_ = "mmdet::_base_/models/mask-rcnn_r50_fpn.py"

model = dict(backbone=dict(_delete_=True))
