"""Necks that no OpenMMLab package has."""

from .pan import CSPPAN, LCPAN

__all__ = ["CSPPAN", "LCPAN"]
