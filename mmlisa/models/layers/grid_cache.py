"""A cache of what is derived from parameters for a grid."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from mmlisa.ops.tracing import is_traced, is_transformed

T = TypeVar("T")


class GridCache:
    """Keeps what was derived from parameters for the last two grids, while the parameters need no gradient.

    An entry holds copies of the parameters that it was derived from, and is used only if their values are equal. No cheaper test
    is reliable: writing through ``.data`` leaves no trace, a parameter has no version in inference mode, and
    ``torch.func.functional_call`` puts another tensor at the same address. On a CPU, comparing costs little beside deriving. On
    other devices the comparison would wait for the device, so nothing is kept there. Nothing is kept in training, under tracers
    and under transforms either.

    Copies and pickles of a cache are empty.
    """

    def __init__(self) -> None:
        self._kept: dict[Hashable, tuple[list[Tensor], Any]] = {}

    def get(self, key: Hashable, parameters: Sequence[Tensor], derive: Callable[[], T]) -> T:
        """Return ``derive()``, or its result for the same ``key`` and parameters of equal dtype and values.

        Args:
            key: the grid, and everything else that the result depends on beside the parameters.
            parameters: all tensors that ``derive`` reads.
            derive: called without gradients if its result is kept. A tensor that it returned is handed out as a copy, which the
                caller may overwrite.
        """
        if is_traced() or is_transformed():
            return derive()
        if not all(_may_be_kept(p) for p in parameters):
            self._kept = {}  # the next step of training changes the parameters
            return derive()
        kept = self._kept.get(key)
        if kept is None or not all(map(_equal, kept[0], parameters)):
            # Tensors made in inference mode could not take part in a later call with gradients.
            with torch.inference_mode(False), torch.no_grad():
                kept = [p.detach().clone() for p in parameters], derive()
        others = [(other, entry) for other, entry in self._kept.items() if other != key]
        self._kept = dict([*others[-1:], (key, kept)])
        return kept[1].clone() if isinstance(kept[1], Tensor) else kept[1]

    def __len__(self) -> int:
        return len(self._kept)

    def __reduce__(self) -> tuple[type["GridCache"], tuple[()]]:
        return GridCache, ()


def _may_be_kept(parameter: Tensor) -> bool:
    if parameter.device.type != "cpu" or type(parameter) not in (Tensor, nn.Parameter):
        return False
    return not (torch.is_grad_enabled() and parameter.requires_grad)


def _equal(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and torch.equal(a, b)
