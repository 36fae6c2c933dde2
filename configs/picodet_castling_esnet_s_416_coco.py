# PicoDet, Castling-ESNet-ViT-S, 416 x 416: the paper has AP 31.3 with 3.25 M parameters and 1.06 G MACs (Castling-ViT, Table 3).
_base_ = "./_base_/picodet_esnet_vit_s_416.py"

model = dict(
    backbone=dict(
        attention=dict(aux=True, epsilon=0.02),
        # The paper starts from an ImageNet classifier: classifier_castling_esnet_s_1000e_imagenet.py makes it.
        # init_cfg=dict(
        #     type="Pretrained",
        #     checkpoint="work_dirs/classifier_castling_esnet_s_1000e_imagenet/epoch_1000.pth",
        #     prefix="backbone.",
        # ),
    ),
)
custom_hooks = [*_base_.custom_hooks, dict(type="mmlisa.CastlingHook")]
