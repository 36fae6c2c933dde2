# UperNet, FLatten-Swin-T, 160k: the paper has mIoU 44.82 (FLatten, Table 1). 60.9 M parameters, 60 M in the paper.
_base_ = [
    "./_base_/models/upernet.py",
    "./_base_/datasets/ade20k.py",
    "./_base_/schedules/swin_160k.py",
    "./_base_/runtime_mmseg.py",
]

# The paper starts from ImageNet weights, this classifier's or the authors': tools/train.py CONFIG --pretrained CHECKPOINT
pretrained_by = "classifier_flatten_swin_t_300e_imagenet.py"

model = dict(
    backbone=dict(
        type="mmlisa.FLattenSwin",
        arch="tiny",
        drop_path_rate=0.3,
    ),
    decode_head=dict(in_channels=[96, 192, 384, 768]),
    auxiliary_head=dict(in_channels=384),
)
train_dataloader = dict(batch_size=2)  # on 8 GPUs
