# Mask R-CNN, FLatten-PVT-T, 1x: the paper has box AP 38.2, mask AP 37.0 (FLatten, Table 2a). PVT's recipe: AdamW 2e-4, decay 1e-4
# of every parameter, one scale.
_base_ = [
    "./_base_/models/mask_rcnn.py",
    "./_base_/datasets/coco_instance.py",
    "./_base_/schedules/swin_1x.py",
    "./_base_/runtime_mmdet.py",
]

model = dict(
    backbone=dict(
        type="mmlisa.FLattenPVT",
        arch="tiny",
        drop_path_rate=0.1,
        # The official weights, converted: python tools/convert_checkpoint.py flatten_pvt_t.pth flatten_pvt_t_in1k.pth
        # init_cfg=dict(type="Pretrained", checkpoint="flatten_pvt_t_in1k.pth", prefix="backbone."),
    ),
    neck=dict(in_channels=[64, 128, 320, 512]),
)
optim_wrapper = dict(optimizer=dict(lr=2e-4, weight_decay=1e-4), paramwise_cfg=None)
