# PicoDet's recipe: 300 epochs of SGD at 8 x 80 images, cosine. Norms do not decay, except PaddleDetection's CSP-PAN's; LC-PAN
# shares with it the convolutions of the maps that come in and of the coarsest one.
train_cfg = dict(type="EpochBasedTrainLoop", max_epochs=300, val_interval=10)
val_cfg = dict(type="ValLoop")
test_cfg = dict(type="TestLoop")
# The paper gives no learning rate: 0.8 is linear scaling of PicoDet's.
optim_wrapper = dict(
    type="OptimWrapper",
    optimizer=dict(type="SGD", lr=0.8, momentum=0.9, weight_decay=4e-5),
    paramwise_cfg=dict(
        norm_decay_mult=0.0,
        custom_keys={"neck.transforms.": dict(decay_mult=1.0), "neck.top.": dict(decay_mult=1.0)},
    ),
)
param_scheduler = [
    dict(type="LinearLR", start_factor=0.1, by_epoch=False, begin=0, end=300),
    dict(type="CosineAnnealingLR", by_epoch=True, begin=0, end=300, T_max=300, convert_to_iter_based=True),
]
auto_scale_lr = dict(enable=False, base_batch_size=640)
