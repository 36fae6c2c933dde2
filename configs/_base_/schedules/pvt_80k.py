# PVT's recipe for Semantic FPN on ADE20K (16 images, AdamW 1e-4, decay 1e-4), with the cosine decay of LiSA's appendix A.2.
train_cfg = dict(type="IterBasedTrainLoop", max_iters=80000, val_interval=8000)
val_cfg = dict(type="ValLoop")
test_cfg = dict(type="TestLoop")
param_scheduler = [dict(type="CosineAnnealingLR", begin=0, end=80000, eta_min=0.0, by_epoch=False)]
optim_wrapper = dict(type="OptimWrapper", optimizer=dict(type="AdamW", lr=1e-4, weight_decay=1e-4))
auto_scale_lr = dict(enable=False, base_batch_size=16)
