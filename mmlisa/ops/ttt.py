"""The two branches of ViT³'s test-time training (Han et al., "ViT³: Unlocking Test-Time Training in Vision").

A small model f is trained on the keys and values of an image, by one step of gradient descent, and applied to its queries::

    L  = -s mean_n f(k_n) v_n^T,   s = 1/3
    G  = dL/dW,   W' = W - G / (||G|| + 1),   y = f_W'(q)

The norm runs over the columns of a matrix, or over a kernel. The gradients are written out (``backend='reference'`` leaves them
to autograd), and the step is differentiated with the rest of the network.
"""

from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor

from .context import operator

SCALE = 1 / 3


@operator(one_shape=True)
def ttt_glu(query: Tensor, key: Tensor, value: Tensor, w1: Tensor, w2: Tensor, *, backend: str = "auto") -> Tensor:
    """Test-time training of a gated linear unit, f(t) = (t W_1) * silu(t W_2), on ``[B, h, N, d]``; w1, w2: ``[h, d, d]``."""
    value = value * (-SCALE / value.shape[2])
    w1, w2 = (w.expand(len(query), -1, -1, -1) for w in (w1, w2))
    if backend == "reference":
        gradients = _autograd(lambda a, b: (_glu(key, a, b) * value).sum(), w1, w2)
    else:
        gradients = _glu_gradients(key, value, w1, w2)
    norms = (torch.linalg.vector_norm(g, dim=2, keepdim=True) for g in gradients)
    w1, w2 = (w - g / (norm + 1) for w, g, norm in zip((w1, w2), gradients, norms, strict=True))
    return _glu(query, w1, w2)


@operator(one_shape=True)
def ttt_convolution(query: Tensor, key: Tensor, value: Tensor, w3: Tensor, *, backend: str = "auto") -> Tensor:
    """Test-time training of a depthwise 3x3 convolution ``w3: [d, 1, 3, 3]``, on ``[B, d, H, W]``."""
    value = value * (-SCALE / prod(value.shape[2:]))  # torch.Size.numel() would make a free size a constant
    kernels = w3.flatten(1).expand(len(query), -1, -1)
    if backend == "reference":
        (gradient,) = _autograd(lambda w: (depthwise_per_image(key, w) * value).sum(), kernels)
    else:
        gradient = torch.stack([(value * near).sum((2, 3)) for near in neighbours(key)], dim=2)
    norm = torch.linalg.vector_norm(gradient, dim=2, keepdim=True)
    return depthwise_per_image(query, kernels - gradient / (norm + 1))


def _glu(x: Tensor, w1: Tensor, w2: Tensor) -> Tensor:
    return (x @ w1) * F.silu(x @ w2)


def _glu_gradients(key: Tensor, error: Tensor, w1: Tensor, w2: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of ``sum(glu(key) * error)`` for both matrices."""
    z1, z2 = key @ w1, key @ w2
    gate = z2.sigmoid()
    return key.mT @ (error * z2 * gate), key.mT @ (error * z1 * gate * (1 + z2 * (1 - gate)))


def _autograd(loss, *weights: Tensor) -> tuple[Tensor, ...]:
    with torch.enable_grad():
        weights = tuple(w if w.requires_grad else w.detach().requires_grad_() for w in weights)
        return torch.autograd.grad(loss(*weights), weights, create_graph=True)


def neighbours(x: Tensor) -> list[Tensor]:
    """Return the nine shifts of a map ``[B, C, H, W]`` by one row and column, with zeros around it, in row-major order."""
    height, width = x.shape[2:]
    x = F.pad(x, (1, 1, 1, 1))
    return [x[:, :, i : i + height, j : j + width] for i in range(3) for j in range(3)]


def depthwise_per_image(x: Tensor, kernels: Tensor) -> Tensor:
    """Convolve each channel of each image with its own 3x3 kernel: ``[B, C, H, W]``, ``[B, C, 9]`` -> ``[B, C, H, W]``.

    A grouped convolution over B C channels would fix the batch size in an exported graph.
    """
    return sum(kernels[:, :, i, None, None] * near for i, near in enumerate(neighbours(x)))
