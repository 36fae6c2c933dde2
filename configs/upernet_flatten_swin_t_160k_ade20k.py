# UperNet, FLatten-Swin-T, 160k: the paper has mIoU 44.82 (FLatten, Table 1).
_base_ = [
    "./_base_/models/upernet.py",
    "./_base_/datasets/ade20k.py",
    "./_base_/schedules/swin_160k.py",
    "./_base_/runtime_mmseg.py",
]

model = dict(
    backbone=dict(
        type="mmlisa.FLattenSwin",
        arch="tiny",
        drop_path_rate=0.3,
        # The official weights, converted: python tools/convert_checkpoint.py flatten_swin_t.pth flatten_swin_t_in1k.pth
        # init_cfg=dict(type="Pretrained", checkpoint="flatten_swin_t_in1k.pth", prefix="backbone."),
    ),
    decode_head=dict(in_channels=[96, 192, 384, 768]),
    auxiliary_head=dict(in_channels=384),
)
train_dataloader = dict(batch_size=2)  # on 8 GPUs
