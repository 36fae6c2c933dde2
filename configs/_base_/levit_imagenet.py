# ImageNet classifiers that PicoDet's backbones start from: "we follow LeViT's training recipe [24] to pretrain backbones on
# ImageNet" (Castling-ViT, Sec. 4.1). Hard distillation from RegNetY-16GF through a head of its own; the auxiliary branch is
# Castling's. The checkpoint holds averaged weights, where LeViT tests the others: mmlisa train PICODET --pretrained CHECKPOINT
# --no-ema starts from these. LeViT's training has mixed precision: --amp.
_base_ = [
    "./models/image_classifier.py",
    "./datasets/imagenet.py",
    "./schedules/levit_1000e.py",
    "./runtime_mmpretrain.py",
]

model = dict(
    type="mmlisa.DistilledClassifier",
    teacher=dict(type="TimmClassifier", model_name="regnety_160.deit_in1k", pretrained=True),
    head=dict(type="LeViTClsHead", distillation=False),
    distill_head=dict(type="LeViTClsHead", distillation=False, num_classes=1000),
    train_cfg=dict(augments=[dict(type="Mixup", alpha=0.8), dict(type="CutMix", alpha=1.0)]),
)
train_dataloader = dict(batch_size=256, sampler=dict(type="RepeatAugSampler", shuffle=True, _delete_=True))
# A stage of 49 tokens never empties the mask at the paper's 0.02: the threshold grows while the rate can still make up for it.
custom_hooks = [
    *_base_.custom_hooks,
    dict(type="EMAHook", momentum=1 - 0.99996, update_buffers=True),
    dict(type="mmlisa.CastlingHook", schedule="linear", begin=0.3, interval=500),
]
