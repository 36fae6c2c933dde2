"""LAMB of MetaFormer's and iViT's ImageNet recipes: ``optimizer=dict(type='mmlisa.Lamb', lr=…, weight_decay=…)``."""

from timm.optim import Lamb

from mmlisa.registry import OPTIMIZERS

OPTIMIZERS.register_module(name="Lamb", module=Lamb)
