# Something-Something V2: data/something_v2/{train,val}.txt list "path frames label", the paths being relative to
# data/something_v2. One frame of each of 8 equal segments, one crop. Kinetics' augmentation without the flip, which would
# turn "from left to right" into its opposite.
_base_ = "./kinetics400.py"

_crop = [
    dict(type="ResizeEdge", scale=256, edge="short"),
    dict(type="RandomResizedCrop", scale=224, interpolation="bicubic"),
]
train_pipeline = [
    dict(type="mmlisa.LoadClips", length=8, random=True),
    dict(type="mmlisa.PerFrame", transforms=[*_crop, *_base_.augmentation]),
    dict(type="mmlisa.PackClips"),
]
test_pipeline = [
    dict(type="mmlisa.LoadClips", length=8),
    dict(type="mmlisa.PerFrame", transforms=_base_.test_frames),
    dict(type="mmlisa.PackClips"),
]
train_dataloader = dict(dataset=dict(data_root="data/something_v2", pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(data_root="data/something_v2", pipeline=test_pipeline))
test_dataloader = val_dataloader
