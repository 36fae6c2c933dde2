"""Operators, backbones, necks and heads."""

from mmlisa.lazy import names_at_first_use

from . import backbones

# from mmlisa.models import FLattenSwin
__all__, __getattr__, __dir__ = names_at_first_use(__name__, {"backbones": " ".join(backbones.__all__)})
