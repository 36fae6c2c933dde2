"""LiSA's equations as they stand, with circulant matrices, in O(N² c D): the oracle of the other backends."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..context import at_least_fp32
from ..relative import circulant


@dataclass(eq=False)
class EncodeReference:
    """Key side: ``kernel_a [c, D, *grid]`` and ``bias_a [c, D]``."""

    kernel: Tensor
    bias: Tensor | None

    @classmethod
    def prepare(cls, kernel: Tensor, bias: Tensor | None) -> "EncodeReference":
        return cls(at_least_fp32(kernel), bias)

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        """``[M, c, *grid]`` each -> ``[M, D, *grid]``."""
        grid = query.shape[2:]
        g = torch.einsum("mcj,cdij->mcdi", key.flatten(2), circulant(self.kernel, grid))
        if self.bias is not None:
            g = g + self.bias[..., None]
        return torch.einsum("mci,mcdi->mdi", query.flatten(2), g).unflatten(2, grid)


@dataclass(eq=False)
class MixReference:
    """Value side: ``kernel_b [D, *grid]`` and ``bias [c, D]``."""

    kernel: Tensor
    bias: Tensor

    @classmethod
    def prepare(cls, kernel: Tensor, bias: Tensor) -> "MixReference":
        return cls(at_least_fp32(kernel), bias)

    def __call__(self, s: Tensor, value: Tensor) -> Tensor:
        """``[M, D, *grid]``, ``[M, c, *grid]`` -> ``[M, c, *grid]``."""
        grid = value.shape[2:]
        g = torch.einsum("mcj,dij->mcdi", value.flatten(2), circulant(self.kernel, grid)) + self.bias[..., None]
        return torch.einsum("mdi,mcdi->mci", s.flatten(2), g).unflatten(2, grid)
