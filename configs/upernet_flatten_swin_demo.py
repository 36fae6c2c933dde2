# A narrow FLatten-Swin under a light UperNet, from scratch on the offline demo data, in minutes on two CPU cores.
_base_ = "./upernet_hylisanet_demo.py"

channels = [32, 64, 128, 160]
model = dict(
    backbone=dict(
        _delete_=True,
        type="mmlisa.FLattenSwin",
        arch=dict(base="tiny", depths=(2, 2, 2, 2), channels=channels, num_heads=(2, 4, 8, 10)),
        image_size=192,
    )
)
