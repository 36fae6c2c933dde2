"""Backbones: one file per host family; names are imported at their first use."""

from mmlisa.lazy import names_at_first_use

__all__, __getattr__, __dir__ = names_at_first_use(
    __name__,
    {
        "dino": "DINOv2 DINOv3",
        "esnet": "CastlingESNetViT ESNet",
        "flatten_cswin": "FLattenCSwin",
        "flatten_pvt": "FLattenPVT FLattenPVTv2",
        "flatten_swin": "FLattenSwin",
        "hvit3": "HViT3 ViT3",
        "ivit": "iViT",
        "lcnet": "CastlingLCNetViT LCNet",
        "levit": "CastlingLeViT",
        "lisanet": "LiSANet",
        "mila": "MILA",
        "mvitv2": "CastlingMViTv2",
        "plain_vit": "CastlingDeiT CastlingViT FLattenDeiT InteractiveViT",
    },
)
