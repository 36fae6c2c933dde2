"""Operators, backbones, necks and heads."""

from . import backbones

__getattr__ = backbones.__getattr__  # from mmlisa.models import FLattenSwin
