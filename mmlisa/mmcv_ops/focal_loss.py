"""Focal loss over sigmoids (https://arxiv.org/abs/1708.02002), by the formula of mmcv's CUDA kernel.

``input`` is ``[N, C]``. ``target`` ``[N]`` is a class; every value outside 0 … C - 1 is background. ``weight`` ``[C]`` is a
factor per class, or empty; background keeps factor 1.
"""

import torch
from torch import Tensor

from mmlisa.ops.precision import widest


def sigmoid_focal_loss_forward(
    input: Tensor, target: Tensor, weight: Tensor, output: Tensor, gamma: float, alpha: float
) -> None:
    """Fill ``output`` ``[N, C]``."""
    p, is_class = _probabilities(input, target)
    loss = torch.where(is_class, -alpha * (1 - p) ** gamma * _log(p), (alpha - 1) * p**gamma * _log(1 - p))
    output.copy_(_weighted(loss, weight, target))


def sigmoid_focal_loss_backward(
    input: Tensor, target: Tensor, weight: Tensor, grad_input: Tensor, gamma: float, alpha: float
) -> None:
    """Fill ``grad_input`` ``[N, C]``."""
    p, is_class = _probabilities(input, target)
    grad = torch.where(
        is_class,
        -alpha * (1 - p) ** gamma * (1 - p - gamma * p * _log(p)),
        (alpha - 1) * p**gamma * (gamma * (1 - p) * _log(1 - p) - p),
    )
    grad_input.copy_(_weighted(grad, weight, target))


def _probabilities(input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    (logits,) = widest(input)
    return logits.sigmoid(), target[:, None] == torch.arange(input.shape[1], device=input.device)


def _log(probability: Tensor) -> Tensor:
    return probability.clamp(min=torch.finfo(torch.float32).tiny).log()


def _weighted(values: Tensor, weight: Tensor, target: Tensor) -> Tensor:
    if not weight.numel():
        return values
    factors = torch.cat([weight, weight.new_ones(1)])  # the last one is the background's
    is_class = (target >= 0) & (target < len(weight))
    return values * factors[target.where(is_class, len(weight))][:, None]
