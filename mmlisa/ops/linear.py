"""Linear attentions of one line each, ``φ(q) (φ(k)ᵀ v)``, and the masked softmax that Castling-ViT trains beside one of them.

Shapes: B batch, h heads, N tokens, d channels of a head. Linear-angular attention (You et al., "Castling-ViT", Sec. 3.2), with
q̂, k̂ of unit length and θ the angle between them::

    Sim(q, k) = 1 - θ / π = 1/2 + arcsin(q̂ k̂ᵀ) / π                   Eq. 5, quadratic in N
              = 1/2 + q̂ k̂ᵀ / π + (odd powers of q̂ k̂ᵀ from 3 on)      Eq. 8
    y_i       = v_i / 2 + q̂_i (Σ_j k̂_jᵀ v_j) / π                       Eq. 9, linear in N

Eq. 8's constant would give the sum of all v_j; Eq. 9, and the authors' module, keep v_i alone. The paper compares it with the
cosine, mean-centred, ReLU-S and ReLU-E kernels (Table 5).

All take query, key and value ``[B, h, N, d]`` and return ``[B, h, N, d]``. Where a function has a ``backend``, ``'reference'``
builds the N x N attention and ``'auto'`` is linear in N.
"""

from math import pi

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from .context import operator, records_gradients

# Vectors shorter than this are not stretched to unit length: their gradient, and that of a LayerNorm before, stay within
# half precision's range even where a token is zero.
MIN_LENGTH = 1e-2
_EPS = 1e-6


def normalize_length(x: Tensor) -> Tensor:
    """``x / max(||x||, MIN_LENGTH)`` over the last axis: of unit length, unless ``x`` is shorter than :data:`MIN_LENGTH`."""
    # F.normalize computes the same, but pnnx turns it into a normalisation of channels.
    return x / x.norm(dim=-1, keepdim=True).clamp(min=MIN_LENGTH)


@operator(takes_bf16=True)
def linear_angular(query: Tensor, key: Tensor, value: Tensor, *, backend: str = "auto") -> Tensor:
    """The linear terms of the angular kernel, Eq. 9: ``v / 2 + q̂ (k̂ᵀ v) / π``. Query and key are normalised here."""
    query, key = normalize_length(query), normalize_length(key)
    if backend == "reference":
        return value / 2 + (query @ key.mT) @ value / pi
    return value / 2 + query @ (key.mT @ value) / pi


@operator
def masked_softmax(query: Tensor, key: Tensor, value: Tensor, threshold: Tensor | float) -> tuple[Tensor, Tensor]:
    """The auxiliary branch, Eq. 10: softmax attention whose probabilities up to ``threshold`` (ε) are set to zero.

    Returns ``[B, h, N, d]`` and the mask ``[B, h, N, N]``. A row's largest probability is at least 1 / N, so ε < 1 / N leaves
    something of every row, and ε >= 1 leaves nothing.
    """
    if not records_gradients():
        return _masked_softmax(query, key, value, threshold)
    # At N = 4096 and 12 heads, each of three maps N x N has 0.8 GB per layer and image.
    return checkpoint(_masked_softmax, query, key, value, threshold, use_reentrant=False, preserve_rng_state=False)


def _masked_softmax(query: Tensor, key: Tensor, value: Tensor, threshold: Tensor | float) -> tuple[Tensor, Tensor]:
    probability = (query @ key.mT * query.shape[-1] ** -0.5).softmax(dim=-1)
    mask = probability > threshold
    return (probability * mask) @ value, mask


@operator
def cosine_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """φ scales to unit length; no further scale ("Cosine", after Hydra attention)."""
    return normalize_length(query) @ (normalize_length(key).mT @ value)


@operator
def mean_centered_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """φ subtracts the mean over the tokens; divided by N sqrt(d) ("MC", after ViTALiTy)."""
    query, key = (t - t.mean(dim=-2, keepdim=True) for t in (query, key))
    return query @ (key.mT @ value / (query.shape[-2] * query.shape[-1] ** 0.5))


@operator
def relu_softmax_attention(query: Tensor, key: Tensor, value: Tensor, average: bool = True) -> Tensor:
    """φ is ReLU, in the place of the softmax, so that rows are not normalised ("ReLU-S").

    The paper does not divide; with ``average`` the sum is divided by N and keeps its scale at any resolution.
    """
    total = key.relu().mT @ value
    return query.relu() @ (total / query.shape[-2] if average else total)


@operator
def relu_exp_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """φ is ReLU, in the place of the exponential, so that rows are normalised ("ReLU-E", after EfficientViT)."""
    query, key = query.relu(), key.relu()
    return query @ (key.mT @ value) / (query @ key.sum(dim=-2)[..., None] + _EPS)


@operator(one_shape=True)
def hydra(query: Tensor, key: Tensor, value: Tensor, *, backend: str = "auto") -> Tensor:
    """Hydra attention, as many heads as channels: ``q / ||q|| * sum_N(k / ||k|| * v)``, norms over all channels of a token.

    Bolya et al., "Hydra Attention: Efficient Attention with Many Heads", Eq. 8. The result does not depend on how the channels
    are split into heads; the reference weighs every pair of tokens, channel by channel.
    """
    query, key = (F.normalize(t, dim=(1, 3)) for t in (query, key))
    if backend == "reference":
        return torch.einsum("bhnd,bhmd,bhmd->bhnd", query, key, value)
    return query * (key * value).sum(2, keepdim=True)


@operator
def efficient(query: Tensor, key: Tensor, value: Tensor, *, backend: str = "auto") -> Tensor:
    """Efficient attention, ``softmax_d(q) (softmax_N(k)ᵀ v)`` per head.

    Shen et al., "Efficient Attention: Attention with Linear Complexities", Sec. 3, softmax normalisation.
    """
    query, key = query.softmax(3), key.softmax(2).mT
    return (query @ key) @ value if backend == "reference" else query @ (key @ value)


@operator(one_shape=True)
def inline(query: Tensor, key: Tensor, value: Tensor, *, backend: str = "auto") -> Tensor:
    """Injective linear attention without its local residual; weights sum to 1 by subtraction, not by division.

    Han et al., "Bridging the Divide: Reconsidering Softmax and Linear Attention", with s_ij = q_i k_jᵀ / (N sqrt(d))::

        y_i = Σ_j (s_ij - mean_m s_im + 1 / N) v_j

    The kernel function, where there is one, is already applied to query and key.
    """
    n = query.shape[2]
    query = query * query.shape[3] ** -0.5
    if backend == "reference":
        similarity = query @ key.mT / n
        return (similarity - similarity.mean(3, keepdim=True) + 1 / n) @ value
    total = query @ key.mean(2)[..., None]
    return query @ (key.mT @ value / n) - (total - 1) * value.mean(2, keepdim=True)
