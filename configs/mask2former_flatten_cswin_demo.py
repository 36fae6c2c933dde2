# Mask2Former with a narrow FLatten-CSwin and few layers and queries, from scratch on the offline demo data.
_base_ = [
    "./_base_/models/mask2former.py",
    "./_base_/datasets/demo_semantic.py",
    "./_base_/schedules/demo.py",
    "./_base_/runtime_mmseg_iter.py",
]

channels, width, num_classes = [32, 64, 128, 160], 64, 9
_attention = dict(embed_dims=width, num_heads=4)
model = dict(
    data_preprocessor=dict(size=(192, 192)),
    backbone=dict(
        type="mmlisa.FLattenCSwin",
        arch=dict(base="tiny", depths=(1, 1, 2, 1), channels=channels, num_heads=(2, 4, 8, 10)),
        image_size=192,
    ),
    decode_head=dict(
        in_channels=channels,
        feat_channels=width,
        out_channels=width,
        num_classes=num_classes,
        num_queries=20,
        positional_encoding=dict(num_feats=width // 2),
        pixel_decoder=dict(
            norm_cfg=dict(type="GN", num_groups=8),
            encoder=dict(
                num_layers=1,
                layer_cfg=dict(self_attn_cfg=_attention, ffn_cfg=dict(embed_dims=width, feedforward_channels=128)),
            ),
            positional_encoding=dict(num_feats=width // 2),
        ),
        transformer_decoder=dict(
            num_layers=2,
            layer_cfg=dict(
                self_attn_cfg=_attention,
                cross_attn_cfg=_attention,
                ffn_cfg=dict(embed_dims=width, feedforward_channels=128),
            ),
        ),
        loss_cls=dict(class_weight=[1.0] * num_classes + [0.1]),
        train_cfg=dict(num_points=1024),
    ),
)
optim_wrapper = dict(optimizer=dict(lr=4e-4))
