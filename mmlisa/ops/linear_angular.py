"""Linear-angular attention (You et al., "Castling-ViT", Sec. 3.2) and the exact angular kernel it approximates.

Shapes: B batch, h heads, N tokens, d channels of a head. With q̂, k̂ of unit length, θ the angle between them::

    Sim(q, k) = 1 - θ / π = 1/2 + arcsin(q̂ k̂ᵀ) / π                   Eq. 5, quadratic in N
              = 1/2 + q̂ k̂ᵀ / π + (odd powers of q̂ k̂ᵀ from 3 on)      Eq. 8
    y_i       = v_i / 2 + q̂_i (Σ_j k̂_jᵀ v_j) / π                       Eq. 9, linear in N

Eq. 8's constant would give the sum of all v_j; Eq. 9, and the authors' module, keep v_i alone.
"""

from math import pi

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from .checks import check_backend
from .precision import at_least_fp32, no_autocast
from .tracing import is_traced, is_transformed

# Vectors shorter than this are not stretched to unit length: their gradient, and that of a LayerNorm before, stay within
# half precision's range even where a token is zero.
MIN_LENGTH = 1e-2


def unit(x: Tensor) -> Tensor:
    """``x / max(||x||, MIN_LENGTH)`` over the last axis: of unit length, unless ``x`` is shorter than :data:`MIN_LENGTH`."""
    # F.normalize computes the same, but pnnx turns it into a normalisation of channels.
    return x / x.norm(dim=-1, keepdim=True).clamp(min=MIN_LENGTH)


def linear_angular(query: Tensor, key: Tensor, value: Tensor, *, backend: str = "auto") -> Tensor:
    """The linear terms of the angular kernel, Eq. 9: ``v / 2 + q̂ (k̂ᵀ v) / π``.

    Args:
        query, key, value: ``[B, h, N, d]``; query and key are normalised here. Half precision is computed in fp32.
        backend: ``'reference'`` forms the N x N similarities, ``'auto'`` never does.

    Returns:
        ``[B, h, N, d]``, at least fp32.

    Raises:
        ValueError: an unknown backend.
    """
    check_backend(backend)
    with no_autocast(query.device):
        query, key, value = unit(at_least_fp32(query)), unit(at_least_fp32(key)), at_least_fp32(value)
        if backend == "reference":
            return value / 2 + (query @ key.transpose(-2, -1)) @ value / pi
        return value / 2 + query @ (key.transpose(-2, -1) @ value) / pi


def masked_softmax(query: Tensor, key: Tensor, value: Tensor, threshold: Tensor | float) -> tuple[Tensor, Tensor]:
    """The auxiliary branch, Eq. 10: softmax attention whose probabilities up to ``threshold`` are set to zero.

    The backward pass computes the N x N maps again: at N = 4096 and 12 heads, each of three has 0.8 GB per layer and image.

    Args:
        query, key, value: ``[B, h, N, d]``, not normalised.
        threshold: ε. A row's largest probability is at least 1 / N, so ε < 1 / N leaves something of every row, and ε >= 1
            leaves nothing.

    Returns:
        ``[B, h, N, d]``, at least fp32, and the mask ``[B, h, N, N]``.
    """
    if not torch.is_grad_enabled() or is_traced() or is_transformed():
        return _masked_softmax(query, key, value, threshold)
    return checkpoint(_masked_softmax, query, key, value, threshold, use_reentrant=False, preserve_rng_state=False)


def _masked_softmax(query: Tensor, key: Tensor, value: Tensor, threshold: Tensor | float) -> tuple[Tensor, Tensor]:
    with no_autocast(query.device):
        query, key, value = at_least_fp32(query), at_least_fp32(key), at_least_fp32(value)
        probability = (query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5).softmax(dim=-1)
        mask = probability > threshold
        return (probability * mask) @ value, mask


def angular_similarity(query: Tensor, key: Tensor) -> Tensor:
    """The exact angular kernel, Eq. 5: ``1 - θ / π`` in [0, 1], ``[B, h, N, N]``."""
    cosine = unit(query) @ unit(key).transpose(-2, -1)
    return 1 - torch.arccos(cosine.clamp(-1, 1)) / pi
