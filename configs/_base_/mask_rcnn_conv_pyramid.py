# Mask R-CNN as MILA and H-ViT³ train it: Swin's multi-scale recipe in the 1x schedule, too.
_base_ = [
    "./models/mask_rcnn.py",
    "./datasets/coco_instance_multiscale.py",
    "./schedules/swin_1x.py",
    "./runtime_mmdet.py",
]
