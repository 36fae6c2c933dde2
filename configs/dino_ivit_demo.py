# DINO with a narrow iViT and few layers and queries, from scratch on the offline demo data.
_base_ = [
    "./_base_/datasets/demo_instance.py",
    "./_base_/schedules/demo.py",
    "./_base_/runtime_mmdet_iter.py",
]

channels, width = [32, 64, 128, 160], 64
model = dict(
    type="DINO",
    num_queries=100,
    with_box_refine=True,
    as_two_stage=True,
    data_preprocessor=dict(
        type="DetDataPreprocessor",
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
        pad_size_divisor=1,
    ),
    backbone=dict(
        type="mmlisa.iViT",
        arch=dict(base="tiny", depths=(1, 2, 3, 1), channels=channels, num_heads=(1, 2, 4, 5)),
        image_size=192,
        out_indices=(1, 2, 3),
    ),
    neck=dict(
        type="ChannelMapper",
        in_channels=channels[1:],
        kernel_size=1,
        out_channels=width,
        norm_cfg=dict(type="GN", num_groups=8),
        num_outs=4,
    ),
    encoder=dict(
        num_layers=1,
        layer_cfg=dict(
            self_attn_cfg=dict(embed_dims=width, num_heads=4, num_levels=4, dropout=0.0),
            ffn_cfg=dict(embed_dims=width, feedforward_channels=128, ffn_drop=0.0),
        ),
    ),
    decoder=dict(
        num_layers=2,
        return_intermediate=True,
        layer_cfg=dict(
            self_attn_cfg=dict(embed_dims=width, num_heads=4, dropout=0.0),
            cross_attn_cfg=dict(embed_dims=width, num_heads=4, num_levels=4, dropout=0.0),
            ffn_cfg=dict(embed_dims=width, feedforward_channels=128, ffn_drop=0.0),
        ),
        post_norm_cfg=None,
    ),
    positional_encoding=dict(num_feats=width // 2, normalize=True, offset=0.0, temperature=20),
    bbox_head=dict(
        type="DINOHead",
        num_classes=8,
        embed_dims=width,
        sync_cls_avg_factor=True,
        loss_cls=dict(type="FocalLoss", use_sigmoid=True, gamma=2.0, alpha=0.25, loss_weight=1.0),
        loss_bbox=dict(type="L1Loss", loss_weight=5.0),
        loss_iou=dict(type="GIoULoss", loss_weight=2.0),
    ),
    dn_cfg=dict(
        label_noise_scale=0.5,
        box_noise_scale=1.0,
        group_cfg=dict(dynamic=True, num_groups=None, num_dn_queries=20),
    ),
    train_cfg=dict(
        assigner=dict(
            type="HungarianAssigner",
            match_costs=[
                dict(type="FocalLossCost", weight=2.0),
                dict(type="BBoxL1Cost", weight=5.0, box_format="xywh"),
                dict(type="IoUCost", iou_mode="giou", weight=2.0),
            ],
        )
    ),
    test_cfg=dict(max_per_img=100),
)
# DINO's own: smaller steps and gradients than convolutional heads take.
optim_wrapper = dict(optimizer=dict(lr=4e-4), clip_grad=dict(max_norm=0.1))
val_evaluator = dict(metric="bbox")
test_evaluator = val_evaluator
