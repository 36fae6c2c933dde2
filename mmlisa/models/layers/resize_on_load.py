"""Parameters of the pretraining grid, loaded from a checkpoint of another one."""

from math import isqrt
from typing import Any, ClassVar

import torch.nn.functional as F
from mmengine.logging import print_log
from torch import Tensor, nn


class ResizeOnLoad(nn.Module):
    """Base of modules whose parameters ``on_grid`` are interpolated where a state dict holds them for another grid.

    The log names each. What :meth:`resize_parameter` cannot fit stays as it is, and fails to load as usual.
    """

    on_grid: ClassVar[tuple[str, ...]] = ()

    def resize_parameter(self, theirs: Tensor, ours: Tensor) -> Tensor:
        """``theirs`` in the shape of ``ours``, or as it is."""
        raise NotImplementedError

    def adapt_state_dict(self, state_dict: dict[str, Tensor], prefix: str) -> None:
        """Interpolates the parameters of another grid, in ``state_dict``."""
        for name in self.on_grid:
            ours, theirs = getattr(self, name), state_dict.get(prefix + name)
            if ours is None or theirs is None or theirs.shape == ours.shape or theirs.ndim != ours.ndim:
                continue
            resized = self.resize_parameter(theirs, ours)
            if resized.shape == ours.shape:
                state_dict[prefix + name] = resized
                print_log(f"{prefix}{name}: {list(theirs.shape)} interpolated to {list(ours.shape)}", logger="current")

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *args: Any) -> None:
        self.adapt_state_dict(state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *args)


def resize_rows(table: Tensor, size: tuple[int, int], *, mode: str = "bicubic", align_corners: bool = False) -> Tensor:
    """``[n², C]``, the rows of a square map, -> ``[prod(size), C]``; a table of another number of rows stays as it is."""
    side = isqrt(len(table))
    if side**2 != len(table):
        return table
    table_map = table.float().T.reshape(1, -1, side, side)
    resized = F.interpolate(table_map, size=size, mode=mode, align_corners=align_corners)
    return resized[0].flatten(1).T.to(table.dtype)
