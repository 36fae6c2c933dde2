# Mask2Former on a plain ViT-Base.
_base_ = [
    "./models/mask2former.py",
    "./datasets/ade20k.py",
    "./schedules/mask2former_160k.py",
    "./runtime_mmseg.py",
]

model = dict(
    backbone=dict(
        type="mmlisa.CastlingViT",
        out_indices=(2, 5, 8, 11),
        # MAE's weights, with the names of mmlisa's backbone:
        # init_cfg=dict(type="Pretrained", checkpoint="mae_vit_b.pth"),
    ),
    neck=dict(type="Feature2Pyramid", embed_dim=768, rescales=[4, 2, 1, 0.5]),
    decode_head=dict(in_channels=[768, 768, 768, 768]),
)
train_dataloader = dict(batch_size=2)
