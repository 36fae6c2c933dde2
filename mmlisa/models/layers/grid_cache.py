"""What is derived from parameters for one grid, kept between calls."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from mmlisa.ops.tracing import is_traced, is_transformed

T = TypeVar("T")


class GridCache:
    """Keeps what was derived from parameters for the last two grids, as long as no gradient is wanted.

    An entry holds copies of the parameters it was derived from, and answers only where their values are equal. Nothing else
    tells: a parameter changes without a trace through ``.data``, has no version in inference mode, is another tensor at the
    same address after ``torch.func.functional_call``. On a CPU, comparing costs little beside deriving. On other devices it
    would wait for the result, so nothing is kept there; neither is anything in training, traces and transforms.

    Copies and pickles start empty.
    """

    def __init__(self) -> None:
        self._kept: dict[Hashable, tuple[list[Tensor], Any]] = {}

    def get(self, key: Hashable, parameters: Sequence[Tensor], derive: Callable[[], T]) -> T:
        """``derive()``, or what it returned for the same ``key`` and parameters of the same dtype and values.

        Args:
            key: the grid, and whatever else the result depends on beside the parameters.
            parameters: all tensors that ``derive`` reads.
            derive: called without gradients where its result is kept.
        """
        if is_traced() or is_transformed():
            return derive()
        if not all(_may_be_kept(p) for p in parameters):
            self._kept = {}  # the next step of training changes the parameters
            return derive()
        kept = self._kept.get(key)
        if kept is None or not all(map(_equal, kept[0], parameters)):
            # Ordinary tensors, which serve a later call outside inference mode as well.
            with torch.inference_mode(False), torch.no_grad():
                kept = [p.detach().clone() for p in parameters], derive()
        others = [(other, entry) for other, entry in self._kept.items() if other != key]
        self._kept = dict([*others[-1:], (key, kept)])
        return kept[1]

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
