# UperNet as MILA and H-ViT³ train it: Swin's recipe, but the heads' norms decay.
_base_ = [
    "./models/upernet.py",
    "./datasets/ade20k.py",
    "./schedules/swin_160k.py",
    "./runtime_mmseg.py",
]

optim_wrapper = dict(
    paramwise_cfg=dict(
        custom_keys={"decode_head": dict(decay_mult=1.0), "auxiliary_head": dict(decay_mult=1.0)},
    ),
)
train_dataloader = dict(batch_size=2)  # on 8 GPUs
