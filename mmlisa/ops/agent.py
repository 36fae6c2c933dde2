"""Agent attention (Han et al., "Agent Attention: On the Integration of Softmax and Linear Attention"): two softmaxes::

y = softmax(q A^T / sqrt(d) + B_2) softmax(A k^T / sqrt(d) + B_1) v
"""

import torch.nn.functional as F
from torch import Tensor

from .checks import check_backend


def agent(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    agents: Tensor,
    gather_bias: Tensor | None = None,
    spread_bias: Tensor | None = None,
    *,
    backend: str = "auto",
) -> Tensor:
    """Agent attention without its convolution.

    Args:
        query, key, value: ``[B, h, N, d]``.
        agents: A, ``[B, h, n, d]``.
        gather_bias: B_1, ``[h, n, N]``; None for 0.
        spread_bias: B_2, ``[h, N, n]``; None for 0.
        backend: ``'reference'`` writes both softmaxes out; ``'auto'`` takes PyTorch's fused attention.

    Returns:
        ``[B, h, N, d]``, in O(N n d).

    Raises:
        ValueError: an unknown backend.
    """
    check_backend(backend)
    attend = _softmax_attention if backend == "reference" else F.scaled_dot_product_attention
    masks = (None if bias is None else bias[None].to(query.dtype) for bias in (gather_bias, spread_bias))
    gathered = attend(agents, key, value, next(masks))
    return attend(query, agents, gathered, next(masks))


def _softmax_attention(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None) -> Tensor:
    logits = query @ key.mT / query.shape[3] ** 0.5
    return (logits if bias is None else logits + bias).softmax(3) @ value
