"""Operators, backbones, necks and heads; names are imported at their first use, so that a backbone loads only what it needs."""

from mmlisa.lazy import names_at_first_use

from . import attention, backbones

__all__, __getattr__, __dir__ = names_at_first_use(
    __name__,
    {
        "attention": " ".join(attention.__all__),
        "backbones": " ".join(backbones.__all__),
        "timm_backbone": "TimmBackbone",
    },
)
