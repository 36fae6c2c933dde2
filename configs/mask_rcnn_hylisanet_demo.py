# The main job: a narrow HyLiSANet under a light Mask R-CNN, from scratch on the offline demo data, in minutes on two CPU cores.
_base_ = ["./_base_/models/mask_rcnn.py", "./_base_/datasets/demo_instance.py", "./_base_/runtime_mmdet.py"]
