"""The interface between backbones and token mixers, and the construction of token mixers from configs.

A token mixer (an attention operator) is an ``nn.Module`` built as ``Operator(channels, num_heads, *, grid, **its own options)``
and called as ``operator(x, grid)``. ``x: [B, N, C]`` holds the tokens of ``grid`` in row-major order, after N - prod(grid)
prefix tokens (a class token) of some backbones. ``grid`` at construction is the pretraining grid, the size of
position-dependent parameters. At the call, it may be any other.
"""

from abc import abstractmethod
from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar

from torch import Tensor, nn

from mmlisa.models.arch import check_options
from mmlisa.ops import layer_dtype, no_autocast
from mmlisa.registry import MODELS

from . import OPERATORS


def build_attention(
    cfg: dict[str, Any], channels: int, num_heads: int, grid: Sequence[int], *, may_shift: bool = True
) -> nn.Module:
    """Build the operator that ``cfg['type']`` names in mmlisa's registry, with the rest of ``cfg`` as its options.

    Hosts with windows set ``may_shift`` in every second block: elsewhere, ``shift=True`` of ``cfg`` is False.

    Raises:
        KeyError: a missing type.
        ValueError: an unregistered type, or an invalid value.
        TypeError: an unknown option.
    """
    options = dict(cfg)
    name = options.pop("type")
    if options.get("shift") and not may_shift:
        options["shift"] = False
    # Not MODELS.build: that searches MMEngine's default scope ('mmdet' in a detection config) before mmlisa's. MODELS.get imports
    # mmdet and mmpretrain for their heads: only for names that are not known yet.
    operator = MODELS.module_dict.get(name) or MODELS.get(name) if isinstance(name, str) else name
    if operator is None:
        raise ValueError(f"attention={cfg!r}; its type must be one of {OPERATORS}")
    check_options(operator, options)
    return operator(channels, num_heads, grid=tuple(grid), **options)


class MixedPrecisionOperator(nn.Module):
    """Base of operators that take prefix tokens; a subclass may need full precision under autocast."""

    # For operators whose values grow with the cube of their input and leave the range of half precision.
    full_precision: ClassVar[bool] = False

    @abstractmethod
    def mix(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        """``[B, N, C] -> [B, N, C]``, in the precision that was chosen for it."""

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        """``[B, N, C] -> [B, N, C]``."""
        count_prefix(x, grid)
        if self.full_precision:
            x = x.to(layer_dtype(x, self))
            with no_autocast(x.device):
                return self.mix(x, grid)
        return self.mix(x, grid)


def check_heads(channels: int, num_heads: int) -> int:
    """Return the width of a head.

    Raises:
        ValueError: ``channels`` is not a multiple of ``num_heads``.
    """
    if num_heads < 1 or channels % num_heads:
        raise ValueError(
            f"channels={channels} is not a multiple of num_heads={num_heads}; in a network, arch gives both for each stage"
        )
    return channels // num_heads


def count_prefix(x: Tensor, grid: Sequence[int]) -> int:
    """Return the number of prefix tokens in ``x: [B, N, C]``: N - prod(grid).

    Raises:
        ValueError: there are fewer tokens than the grid has.
    """
    prefix = x.shape[1] - prod(grid)
    if prefix < 0:
        raise ValueError(f"the grid {tuple(grid)} has {prod(grid)} tokens, but x only {x.shape[1]}")
    return prefix


def check_tokens(x: Tensor, grid: Sequence[int]) -> None:
    """Check the tokens of a token mixer that takes no prefix tokens.

    Raises:
        ValueError: the number of tokens in ``x: [B, N, C]`` is not prod(grid).
    """
    if prefix := count_prefix(x, grid):
        raise ValueError(
            f"this attention has no place for class tokens: it takes the {prod(grid)} tokens of the grid {tuple(grid)}, and got "
            f"{prod(grid) + prefix}; set attention to another type, or choose a backbone without class tokens"
        )
