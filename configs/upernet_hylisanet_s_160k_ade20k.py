# UperNet, HyLiSANet-S, 160k: not in the paper; Swin-T's recipe.
_base_ = [
    "./_base_/models/upernet.py",
    "./_base_/datasets/ade20k.py",
    "./_base_/schedules/swin_160k.py",
    "./_base_/runtime_mmseg.py",
]

pretrained_by = "classifier_hylisanet_s_300e_imagenet.py"

model = dict(
    backbone=dict(
        type="mmlisa.LiSANet",
        arch="hybrid-small",
        drop_path_rate=0.3,
    ),
    decode_head=dict(in_channels=[64, 128, 320, 384]),
    auxiliary_head=dict(in_channels=320),
)
train_dataloader = dict(batch_size=2)  # on 8 GPUs
