# UperNet on a plain ViT, with mmsegmentation's recipe of BEiT (beit-base_upernet_8xb2-160k_ade20k-640x640.py): 16 images, AdamW
# 3e-5, weight decay 0.05, layer decay 0.9, 1500 iterations of warm-up, linear decay, four maps of the strides 4 to 32 from four
# blocks. Unlike there, crops of 512 pixels, tests of whole images, and heads as wide as Swin's. A config adds its backbone and
# the channels.
_base_ = [
    "./models/upernet.py",
    "./datasets/ade20k_tta.py",
    "./schedules/swin_160k.py",
    "./runtime_mmseg.py",
]

model = dict(
    backbone=dict(out_indices=(3, 5, 7, 11), drop_path_rate=0.1),
    neck=dict(type="Feature2Pyramid", rescales=[4, 2, 1, 0.5]),
)
_no_decay = dict(decay_mult=0.0)
optim_wrapper = dict(
    _delete_=True,
    type="OptimWrapper",
    constructor="mmlisa.LayerwiseOptimWrapperConstructor",
    optimizer=dict(type="AdamW", lr=3e-5, betas=(0.9, 0.999), weight_decay=0.05),
    paramwise_cfg=dict(
        layer_decay=0.9,
        bias_decay_mult=0.0,
        norm_decay_mult=0.0,
        custom_keys={
            "stem.position": _no_decay,
            "cls_token": _no_decay,
            "reg_token": _no_decay,
            "gamma": _no_decay,
        },
    ),
)
train_dataloader = dict(batch_size=2)  # on 8 GPUs
