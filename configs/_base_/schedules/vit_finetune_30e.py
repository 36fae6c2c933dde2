# iViT's fine-tuning of plain ViTs (Table 9, column "Table 4"): 30 epochs of AdamW 5e-6 at 1024 images. The rate is constant after
# five epochs of warm-up: the table has no decay in this column, and DeiT's fine-tuning at 384 pixels has none. Repeated
# augmentation is not in the table and left out.
_base_ = "./imagenet_300e.py"

train_cfg = dict(max_epochs=30, val_interval=1)
param_scheduler = [
    dict(type="LinearLR", start_factor=1e-3, by_epoch=True, begin=0, end=5, convert_to_iter_based=True),
]
optim_wrapper = dict(
    optimizer=dict(lr=5e-6, weight_decay=1e-8),
    paramwise_cfg=dict(custom_keys={"position": dict(decay_mult=0.0)}),
    clip_grad=None,
)
