# Mask2Former on a plain ViT-Base, at 640 pixels, whose MACs the paper prints.
_base_ = [
    "./models/mask2former.py",
    "./datasets/ade20k_640.py",
    "./schedules/mask2former_160k.py",
    "./runtime_mmseg.py",
]

model = dict(
    data_preprocessor=dict(size=(640, 640)),
    backbone=dict(
        type="mmlisa.CastlingViT",
        out_indices=(2, 5, 8, 11),
    ),
    neck=dict(type="Feature2Pyramid", embed_dim=768, rescales=[4, 2, 1, 0.5]),
    decode_head=dict(in_channels=[768, 768, 768, 768]),
)
train_dataloader = dict(batch_size=2)
