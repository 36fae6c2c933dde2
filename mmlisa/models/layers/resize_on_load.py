"""Parameters of the pretraining grid, loaded from a checkpoint of another one."""

from collections.abc import Sequence
from math import isqrt, prod
from numbers import Integral
from typing import Any, ClassVar

import torch.nn.functional as F
from mmengine.logging import print_log
from torch import Tensor, nn

from mmlisa.ops.context import at_least_fp32


class ResizeOnLoad(nn.Module):
    """Base of modules whose parameters :attr:`on_grid` are interpolated when a state dict holds them for another grid.

    The log names each of them. A parameter that :meth:`resize_parameter` cannot fit stays unchanged and fails to load as usual.
    The metadata of a state dict hold the grid of each module, which tells 18x32 positions from 24x24.
    """

    on_grid: ClassVar[tuple[str, ...]] = ()
    grid: tuple[int, ...] | None = None  # grid of the parameters, if their shapes do not tell it

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.register_load_state_dict_pre_hook(_adapt)
        self.register_state_dict_post_hook(_note_grid)

    def resize_parameter(self, theirs: Tensor, ours: Tensor, grid: Sequence[int] | None = None) -> Tensor:
        """Return ``theirs`` in the shape of ``ours``, or unchanged if that is impossible.

        ``grid`` is that of ``theirs``, for parameters whose shape does not tell it; None stands for a square.
        """
        raise NotImplementedError

    def fit(self, name: str, theirs: Tensor, grid: Sequence[int] | None = None) -> Tensor:
        """Return ``theirs`` in the shape of the parameter ``name``, or unchanged; ``grid`` as in :meth:`resize_parameter`."""
        ours = getattr(self, name)
        if ours is None or theirs.ndim != ours.ndim:
            return theirs
        resized = self.resize_parameter(theirs, ours, grid)
        return resized if resized.shape == ours.shape else theirs

    def adapt_state_dict(self, state_dict: dict[str, Tensor], prefix: str, metadata: dict[str, Any]) -> None:
        """Interpolate the parameters of another grid, in ``state_dict``; ``metadata`` is this module's entry in its metadata."""
        grid = metadata.get("grid")
        if not isinstance(grid, tuple) or not all(isinstance(size, Integral) for size in grid):  # an older file
            grid = None
        for name in self.on_grid:
            ours, theirs = getattr(self, name), state_dict.get(prefix + name)
            if ours is None or theirs is None or (theirs.shape == ours.shape and grid in (None, self.grid)):
                continue
            resized = self.fit(name, theirs, grid)
            if resized is not theirs:
                state_dict[prefix + name] = resized
                print_log(f"{prefix}{name}: {list(theirs.shape)} interpolated to {list(ours.shape)}", logger="current")
        if grid is not None:
            metadata["grid"] = getattr(self, "grid", None)  # a module that has its positions left out has none


def _adapt(module: ResizeOnLoad, state_dict: dict[str, Tensor], prefix: str, metadata: dict[str, Any], *_: Any) -> None:
    module.adapt_state_dict(state_dict, prefix, dict(metadata))  # the user's state dict stays as it is


def _note_grid(module: ResizeOnLoad, state_dict: dict[str, Tensor], prefix: str, metadata: dict[str, Any]) -> None:
    if (grid := getattr(module, "grid", None)) is not None:
        metadata["grid"] = tuple(grid)


def resize_rows(
    table: Tensor,
    size: Sequence[int],
    grid: Sequence[int] | None = None,
    *,
    mode: str = "bicubic",
    align_corners: bool = False,
) -> Tensor:
    """``[prod(grid), C] -> [prod(size), C]``; another number of rows stays unchanged. None stands for a square."""
    grid = grid or (isqrt(len(table)),) * 2
    if prod(grid) != len(table) or tuple(grid) == tuple(size):
        return table
    table_map = at_least_fp32(table).T.reshape(1, -1, *grid)
    resized = F.interpolate(table_map, size=tuple(size), mode=mode, align_corners=align_corners)
    return resized[0].flatten(1).T.to(table.dtype)
