# A narrow FLatten-Swin under the Mask R-CNN of mask_rcnn_hylisanet_demo.py, from scratch on the offline demo data, in minutes on
# two CPU cores.
_base_ = "./mask_rcnn_hylisanet_demo.py"

model = dict(
    backbone=dict(
        _delete_=True,
        type="mmlisa.FLattenSwin",
        arch=dict(base="tiny", depths=(2, 2, 2, 2), channels=(32, 64, 128, 160), num_heads=(2, 4, 8, 10)),
        image_size=192,
    )
)
