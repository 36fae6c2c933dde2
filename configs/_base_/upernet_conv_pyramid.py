# UperNet as MILA and H-ViT³ train it: Swin's recipe.
_base_ = [
    "./models/upernet.py",
    "./datasets/ade20k.py",
    "./schedules/swin_160k.py",
    "./runtime_mmseg.py",
]

train_dataloader = dict(batch_size=2)  # on 8 GPUs
