"""The kernels that the Castling-ViT paper compares linear-angular attention with (You et al., Table 5).

Each is ``φ(q) (φ(k)ᵀ v)`` over ``[B, h, N, d]``, in fp32 at least, with its own φ and its own scale.
"""

from torch import Tensor

from .linear_angular import unit
from .precision import at_least_fp32, no_autocast

MC_AXES = {"tokens": -2, "channels": -1}
_EPS = 1e-6


def cosine_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """φ scales to unit length; no further scale ("Cosine", after Hydra attention)."""
    with no_autocast(query.device):
        query, key = unit(at_least_fp32(query)), unit(at_least_fp32(key))
        return query @ (key.transpose(-2, -1) @ at_least_fp32(value))


def mean_centered_attention(query: Tensor, key: Tensor, value: Tensor, axis: str = "tokens") -> Tensor:
    """φ subtracts the mean over ``axis``; divided by N sqrt(d) ("MC", after ViTALiTy).

    Raises:
        ValueError: an axis other than ``'tokens'`` and ``'channels'``.
    """
    if axis not in MC_AXES:
        raise ValueError(f"axis is {axis!r}; it must be one of {sorted(MC_AXES)}")
    with no_autocast(query.device):
        query, key = (t - t.mean(dim=MC_AXES[axis], keepdim=True) for t in (at_least_fp32(query), at_least_fp32(key)))
        scale = query.shape[-2] * query.shape[-1] ** 0.5
        return query @ (key.transpose(-2, -1) @ at_least_fp32(value) / scale)


def relu_softmax_attention(query: Tensor, key: Tensor, value: Tensor, average: bool = True) -> Tensor:
    """φ is ReLU and stands for the whole softmax, so that rows are not normalised ("ReLU-S").

    The paper has no division at all; with ``average`` the sum is divided by N and keeps its scale at any resolution.
    """
    with no_autocast(query.device):
        query, key = at_least_fp32(query).relu(), at_least_fp32(key).relu()
        total = key.transpose(-2, -1) @ at_least_fp32(value)
        return query @ (total / query.shape[-2] if average else total)


def relu_exp_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """φ is ReLU and stands for the exponential, so that rows are normalised ("ReLU-E", after EfficientViT)."""
    with no_autocast(query.device):
        query, key = at_least_fp32(query).relu(), at_least_fp32(key).relu()
        total = query @ key.sum(dim=-2)[..., None]
        return query @ (key.transpose(-2, -1) @ at_least_fp32(value)) / (total + _EPS)
