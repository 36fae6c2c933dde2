"""A cache of tensors derived from parameters for a grid."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from mmlisa.ops.context import is_traced, is_transformed

T = TypeVar("T")


class GridCache:
    """Cache of the tensors derived from parameters for the last two grids, while the parameters need no gradient.

    An entry holds copies of its parameters and is used only if their values are equal. Versions and addresses would not do:
    MMEngine's averages write through ``.data``, which leaves no trace, in networks that stay in eval mode. On a CPU, comparing
    costs little beside deriving. On other devices, it would wait for the device, and nothing is kept.
    """

    def __init__(self) -> None:
        self._kept: dict[Hashable, tuple[list[Tensor], Any]] = {}

    def get(self, key: Hashable, parameters: Sequence[Tensor], derive: Callable[[], T]) -> T:
        """Return ``derive()``, or its result for the same ``key`` and parameters of equal dtype and values.

        Args:
            key: the grid, and everything else on which the result depends beside the parameters.
            parameters: all tensors that ``derive`` reads.
            derive: called without gradients if its result is kept. The caller must not write into the result.
        """
        if is_traced() or is_transformed():
            return derive()
        if not all(map(_may_be_kept, parameters)):
            self._kept = {}  # the next step of training changes the parameters
            return derive()
        kept = self._kept.pop(key, None)
        if kept is None or not all(map(_equal, kept[0], parameters)):
            # Tensors made in inference mode could not take part in a later call with gradients.
            with torch.inference_mode(False), torch.no_grad():
                kept = [p.detach().clone() for p in parameters], derive()
        self._kept = dict([*list(self._kept.items())[-1:], (key, kept)])
        return kept[1]


def _may_be_kept(parameter: Tensor) -> bool:
    is_plain = parameter.device.type == "cpu" and type(parameter) in (Tensor, nn.Parameter)
    return is_plain and not (torch.is_grad_enabled() and parameter.requires_grad)


def _equal(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and torch.equal(a, b)
