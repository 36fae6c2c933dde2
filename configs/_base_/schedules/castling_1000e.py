# Castling-ViT's recipe for ImageNet: SGD 2.0 at 64 x 64 images, 11 epochs of warm-up from 0.01, x 0.9875 per epoch, 1000 epochs.
train_cfg = dict(by_epoch=True, max_epochs=1000, val_interval=10)
val_cfg = dict()
test_cfg = dict()
param_scheduler = [
    dict(type="LinearLR", start_factor=0.005, by_epoch=True, begin=0, end=11, convert_to_iter_based=True),
    dict(type="ExponentialLR", gamma=0.9875, by_epoch=True, begin=11, end=1000),
]
optim_wrapper = dict(type="OptimWrapper", optimizer=dict(type="SGD", lr=2.0, momentum=0.9, weight_decay=2e-5))
auto_scale_lr = dict(enable=False, base_batch_size=4096)
