"""Rounded widths against timm's."""

import timm.layers

from mmlisa.models.layers import make_divisible


def test_widths():
    for divisor in (8, 16):
        for width in (1, 7.9, 8, 11.9, 12, 36.8, 100.5, 513):
            assert make_divisible(width, divisor) == timm.layers.make_divisible(width, divisor)
