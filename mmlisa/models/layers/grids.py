"""Parameters of the pretraining grid on another grid: derived at the call and cached, or resized as they are loaded."""

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from math import isqrt, prod
from numbers import Integral
from typing import Any, ClassVar, TypeVar

import torch
import torch.nn.functional as F
from mmengine.logging import print_log
from torch import Tensor, nn

from mmlisa.ops.context import at_least_fp32, has_free_size, is_traced, is_transformed, no_autocast
from mmlisa.ops.relative import toeplitz

from .tokens import PatchEmbed, to_map, to_tokens

T = TypeVar("T")
# A class and a distillation token; a table with more rows beyond a square number is not of a square grid.
_MAX_PREFIX = 2


class GridCache:
    """Cache of the tensors derived from parameters for the last grid, while the parameters need no gradient.

    An entry holds copies of its parameters and is used only if their values are equal. Versions and addresses would not do:
    MMEngine's averages write through ``.data``, which leaves no trace, in networks that stay in eval mode. On a CPU, comparing
    costs little beside deriving. On other devices, it would wait for the device, and nothing is kept.
    """

    def __init__(self) -> None:
        self._entry: tuple[Hashable, list[Tensor], Any] | None = None

    def get(self, key: Hashable, parameters: Sequence[Tensor], derive: Callable[[], T]) -> T:
        """Return ``derive()``, or its result for the same ``key`` and parameters of equal dtype and values; never write into it.

        ``key`` and ``parameters`` are all that ``derive`` reads. It is called without gradients if its result is kept.
        """
        if is_traced() or is_transformed():
            return derive()
        for parameter in parameters:
            is_plain = parameter.device.type == "cpu" and type(parameter) in (Tensor, nn.Parameter)
            if not is_plain or (torch.is_grad_enabled() and parameter.requires_grad):
                self._entry = None  # the next step of training changes the parameters
                return derive()
        entry = self._entry  # read once: another thread may write it
        if entry is None or entry[0] != key or not _are_equal(entry[1], parameters):
            # Tensors made in inference mode could not take part in a later call with gradients.
            with torch.inference_mode(False), torch.no_grad():
                entry = key, [p.detach().clone() for p in parameters], derive()
            self._entry = entry
        return entry[2]


def _are_equal(kept: Sequence[Tensor], parameters: Sequence[Tensor]) -> bool:
    pairs = zip(kept, parameters, strict=True)
    return all(one.dtype == other.dtype and torch.equal(one, other) for one, other in pairs)


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

    def resize_parameter(self, saved: Tensor, parameter: Tensor, grid: Sequence[int] | None = None) -> Tensor:
        """Return ``saved`` in the shape of ``parameter``, or unchanged if that is impossible.

        ``grid`` is that of ``saved``, for parameters whose shape does not tell it; None stands for a square.
        """
        raise NotImplementedError

    def fit(self, name: str, saved: Tensor, grid: Sequence[int] | None = None) -> Tensor:
        """Return ``saved`` in the shape of the parameter ``name``, or unchanged; see :meth:`resize_parameter`."""
        parameter = getattr(self, name)
        if parameter is None or saved.ndim != parameter.ndim:
            return saved
        resized = self.resize_parameter(saved, parameter, grid)
        return resized if resized.shape == parameter.shape else saved

    def adapt_state_dict(self, state_dict: dict[str, Tensor], prefix: str, metadata: dict[str, Any]) -> None:
        """Interpolate the parameters of another grid, in ``state_dict``; ``metadata`` is this module's entry in its metadata."""
        grid = metadata.get("grid")
        if not isinstance(grid, tuple) or not all(isinstance(size, Integral) for size in grid):  # an older file
            grid = None
        for name in self.on_grid:
            parameter, saved = getattr(self, name), state_dict.get(prefix + name)
            if parameter is None or saved is None or (saved.shape == parameter.shape and grid in (None, self.grid)):
                continue
            resized = self.fit(name, saved, grid)
            if resized is not saved:
                state_dict[prefix + name] = resized
                print_log(
                    f"{prefix}{name}: {list(saved.shape)} interpolated to {list(parameter.shape)}", logger="current"
                )
        if grid is not None:
            metadata["grid"] = self.grid


def _adapt(module: ResizeOnLoad, state_dict: dict[str, Tensor], prefix: str, metadata: dict[str, Any], *_: Any) -> None:
    module.adapt_state_dict(state_dict, prefix, dict(metadata))  # the user's state dict stays as it is


def _note_grid(module: ResizeOnLoad, state_dict: dict[str, Tensor], prefix: str, metadata: dict[str, Any]) -> None:
    if module.grid is not None:
        metadata["grid"] = module.grid


def stretch(
    x: Tensor, size: Sequence[int], mode: str = "bilinear", align_corners: bool = False, antialias: bool = False
) -> Tensor:
    """Interpolate the last axes: ``[..., *any] -> [..., *size]``; ``x`` itself if it has this size."""
    lead, old = x.shape[: x.ndim - len(size)], x.shape[x.ndim - len(size) :]
    if not has_free_size(*size) and tuple(old) == tuple(size):
        return x
    maps = x.reshape(1, -1, *old)
    maps = F.interpolate(maps, size=tuple(size), mode=mode, align_corners=align_corners, antialias=antialias)
    return maps.reshape(*lead, *size)


def resize_rows(
    table: Tensor,
    size: Sequence[int],
    grid: Sequence[int] | None = None,
    *,
    mode: str = "bicubic",
    align_corners: bool = False,
    antialias: bool = False,
) -> Tensor:
    """``[prod(grid), C] -> [prod(size), C]``; another number of rows stays unchanged. None stands for a square."""
    grid = grid or (isqrt(len(table)),) * 2
    if prod(grid) != len(table) or tuple(grid) == tuple(size):
        return table
    maps = stretch(at_least_fp32(table).T.unflatten(1, grid), size, mode, align_corners, antialias)
    return maps.flatten(1).T.to(table.dtype)


class PositionsOnLoad(ResizeOnLoad):
    """Base of modules with positions ``[1, N, C]`` on :attr:`grid`, the pretraining grid, after those of prefix tokens."""

    antialias: bool = False  # whether positions are interpolated with antialiasing

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._resized = GridCache()

    def resize(self, table: Tensor, grid: Sequence[int]) -> Tensor:
        """Interpolate the positions bicubically to ``grid``; those of prefix tokens stay unchanged."""
        grid = tuple(grid)
        if grid == self.grid:
            return table
        prefix = table.shape[1] - prod(self.grid)

        def derive() -> Tensor:
            resized = _interpolate(at_least_fp32(table[:, prefix:]), self.grid, grid, self.antialias).to(table.dtype)
            return torch.cat([table[:, :prefix], resized], dim=1) if prefix else resized

        return self._resized.get(grid, [table], derive)

    def resize_parameter(self, saved: Tensor, parameter: Tensor, grid: Sequence[int] | None = None) -> Tensor:
        """As many prefix tokens as ``parameter`` has stay unchanged; further ones, such as a distillation token, are left out."""
        wanted, count = parameter.shape[1] - prod(self.grid), saved.shape[1]
        grid = grid or (isqrt(count),) * 2
        prefix = count - prod(grid)
        if not wanted <= prefix <= _MAX_PREFIX:
            return saved
        rows = resize_rows(saved[0, prefix:], self.grid, grid, antialias=self.antialias)
        return torch.cat([saved[:, :wanted], rows[None]], dim=1)


def _interpolate(table: Tensor, old: tuple[int, ...], new: tuple[int, ...], antialias: bool) -> Tensor:
    """``[1, prod(old), C] -> [1, prod(new), C]``.

    As a product with a matrix along either axis: its gradient takes a sixth of the time of that of ``F.interpolate`` (96
    channels, 56x56 to 128x128, on a CPU).
    """
    bicubic = partial(F.interpolate, mode="bicubic", align_corners=False, antialias=antialias)
    if is_traced():  # the sizes may be symbols
        return to_tokens(bicubic(to_map(table, old), size=new))
    with no_autocast(table.device):
        for axis, (n, size) in enumerate(zip(old, new, strict=True)):
            unit = torch.eye(n, dtype=table.dtype, device=table.device)[None, None]
            matrix = bicubic(unit, size=(size, n))[0, 0]
            after = table.unflatten(1, (*new[:axis], *old[axis:])).flatten(axis + 2)
            table = (matrix @ after).reshape(1, -1, table.shape[2])
    return table


class PositionedPatchEmbed(PositionsOnLoad, PatchEmbed):
    """A patch embedding, learned positions and an optional class token: map -> ``[B, (1 +) N, C]``, grid of N patches.

    The map is padded with zeros to whole patches; positions are interpolated from the pretraining ``grid`` to the grid at hand.
    """

    on_grid = ("position",)

    def __init__(
        self,
        in_channels: int,
        channels: int,
        side: int,
        grid: Sequence[int],
        *,
        norm: nn.Module,
        class_token: int = 0,
    ) -> None:
        super().__init__(in_channels, channels, side, side, norm=norm)
        self.cls_token = nn.Parameter(torch.empty(1, 1, channels)) if class_token else None
        self.position = nn.Parameter(torch.empty(1, class_token + prod(grid), channels))
        self.grid = tuple(grid)
        for tensor in (self.cls_token, self.position):
            if tensor is not None:
                nn.init.trunc_normal_(tensor, std=0.02)

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[int, ...]]:
        x, grid = super().forward(x)
        if self.cls_token is not None:
            x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1).to(x.dtype), x], dim=1)
        return x + self.resize(self.position, grid).to(x.dtype), grid


class RelativePosition(ResizeOnLoad):
    """A table of learned weights over the offsets of a grid, as (multi-level) Toeplitz matrices.

    On another grid than the pretraining one, the table is interpolated (linearly, origin on origin).

    Args:
        shape: leading shape: ``(h,)`` is one table per head.
        grid: the pretraining grid.
    """

    on_grid = ("table",)

    def __init__(self, shape: Sequence[int], grid: Sequence[int]) -> None:
        super().__init__()
        self.axes_before = len(shape)
        self.table = nn.Parameter(torch.empty(*shape, *(2 * g - 1 for g in grid)))
        nn.init.normal_(self.table, std=0.02)

    def forward(self, grid: Sequence[int]) -> Tensor:
        """``[*shape, N, N]``, N = prod(grid); entry (i, j) belongs to the offset i - j."""
        return toeplitz(self._stretch(self.table, tuple(2 * g - 1 for g in grid)), grid)

    def resize_parameter(self, saved: Tensor, parameter: Tensor, grid: Sequence[int] | None = None) -> Tensor:
        return self._stretch(saved, tuple(parameter.shape[self.axes_before :]))

    @staticmethod
    def _stretch(table: Tensor, sizes: Sequence[int]) -> Tensor:
        return stretch(table, sizes, "bilinear" if len(sizes) == 2 else "trilinear", align_corners=True)
