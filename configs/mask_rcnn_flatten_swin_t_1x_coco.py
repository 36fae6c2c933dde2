# Mask R-CNN, FLatten-Swin-T, 1x: the paper has box AP 44.2, mask AP 40.2 (FLatten, Table 2a).
_base_ = [
    "./_base_/models/mask_rcnn.py",
    "./_base_/datasets/coco_instance_multiscale.py",
    "./_base_/schedules/swin_1x.py",
    "./_base_/runtime_mmdet.py",
]

model = dict(
    backbone=dict(
        type="mmlisa.FLattenSwin",
        arch="tiny",
        drop_path_rate=0.2,
        # The official weights, converted: python tools/convert_checkpoint.py flatten_swin_t.pth flatten_swin_t_in1k.pth
        # init_cfg=dict(type="Pretrained", checkpoint="flatten_swin_t_in1k.pth", prefix="backbone."),
    ),
    neck=dict(in_channels=[96, 192, 384, 768]),
)
