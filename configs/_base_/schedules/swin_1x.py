# Swin's recipe for COCO (LiSA's appendix A.2 refers to it): AdamW 1e-4 at 16 images, no decay of norms and positions,
# but of the batch norms of Cascade R-CNN's heads, as Swin's config names only "norm".
train_cfg = dict(type="EpochBasedTrainLoop", max_epochs=12, val_interval=1)
val_cfg = dict(type="ValLoop")
test_cfg = dict(type="TestLoop")
param_scheduler = [
    dict(type="LinearLR", start_factor=0.001, by_epoch=False, begin=0, end=500),
    dict(type="MultiStepLR", begin=0, end=12, by_epoch=True, milestones=[8, 11], gamma=0.1),
]
optim_wrapper = dict(
    type="OptimWrapper",
    optimizer=dict(type="AdamW", lr=1e-4, betas=(0.9, 0.999), weight_decay=0.05),
    paramwise_cfg=dict(
        norm_decay_mult=0.0,
        custom_keys={
            "position_embedding": dict(decay_mult=0.0),
            "relative_position_bias_table": dict(decay_mult=0.0),
            "shared_convs.": dict(decay_mult=1.0),
        },
    ),
)
auto_scale_lr = dict(enable=False, base_batch_size=16)
