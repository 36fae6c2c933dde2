"""LiSA's equations as they stand, with circulant matrices, in O(N² c D): the oracle of the other backends."""

from functools import partial

import torch
from torch import Tensor

from ..context import at_least_fp32
from ..relative import circulant
from .common import Side


def prepare_encode(kernel: Tensor, bias: Tensor | None) -> Side:
    return partial(_encode, kernel=at_least_fp32(kernel), bias=bias)


def prepare_mix(kernel: Tensor, bias: Tensor) -> Side:
    return partial(_mix, kernel=at_least_fp32(kernel), bias=bias)


def _encode(query: Tensor, key: Tensor, kernel: Tensor, bias: Tensor | None) -> Tensor:
    grid = query.shape[2:]
    g = torch.einsum("mcj,cdij->mcdi", key.flatten(2), circulant(kernel, grid))
    if bias is not None:
        g = g + bias[..., None]
    return torch.einsum("mci,mcdi->mdi", query.flatten(2), g).unflatten(2, grid)


def _mix(s: Tensor, value: Tensor, kernel: Tensor, bias: Tensor) -> Tensor:
    grid = value.shape[2:]
    g = torch.einsum("mcj,dij->mcdi", value.flatten(2), circulant(kernel, grid)) + bias[..., None]
    return torch.einsum("mdi,mcdi->mci", s.flatten(2), g).unflatten(2, grid)
