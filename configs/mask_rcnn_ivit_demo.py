# A narrow iViT under the Mask R-CNN of mask_rcnn_hylisanet_demo.py, from scratch on the offline demo data, in minutes on two
# CPU cores.
_base_ = "./mask_rcnn_hylisanet_demo.py"

model = dict(
    backbone=dict(
        _delete_=True,
        type="mmlisa.iViT",
        arch=dict(base="tiny", depths=(1, 2, 3, 1), channels=(32, 64, 128, 160), num_heads=(1, 2, 4, 5)),
        # Weights scaled by their fan-in: from 0.02, a few hundred iterations are not enough.
        init_cfg=dict(type="Kaiming", layer=["Linear", "Conv2d"], mode="fan_in", nonlinearity="linear"),
    )
)
