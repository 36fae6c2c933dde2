"""Focal loss (https://arxiv.org/abs/1708.02002) over sigmoids and over a softmax, as mmcv's CUDA kernels compute them.

``target`` ``[N]`` is a class or, for the sigmoid, anything else for background; ``weight`` ``[C]`` is a factor per class, or
empty.
"""

import torch
from torch import Tensor

from mmlisa.ops.precision import at_least_fp32


def _log(probability: Tensor) -> Tensor:
    return probability.clamp(min=torch.finfo(torch.float32).tiny).log()


def _class_weight(weight: Tensor, target: Tensor) -> Tensor | int:
    return weight[target] if weight.numel() else 1


def sigmoid_focal_loss_forward(
    input: Tensor, target: Tensor, weight: Tensor, output: Tensor, gamma: float, alpha: float
) -> None:
    """Fills ``output`` ``[N, C]``."""
    p = at_least_fp32(input).sigmoid()
    is_class = target[:, None] == torch.arange(input.shape[1], device=input.device)
    loss = torch.where(is_class, -alpha * (1 - p) ** gamma * _log(p), (alpha - 1) * p**gamma * _log(1 - p))
    output.copy_((loss.T * _class_weight(weight, target)).T)


def sigmoid_focal_loss_backward(
    input: Tensor, target: Tensor, weight: Tensor, grad_input: Tensor, gamma: float, alpha: float
) -> None:
    p = at_least_fp32(input).sigmoid()
    is_class = target[:, None] == torch.arange(input.shape[1], device=input.device)
    grad = torch.where(
        is_class,
        -alpha * (1 - p) ** gamma * (1 - p - gamma * p * _log(p)),
        (alpha - 1) * p**gamma * (gamma * (1 - p) * _log(1 - p) - p),
    )
    grad_input.copy_((grad.T * _class_weight(weight, target)).T)


def softmax_focal_loss_forward(
    input: Tensor, target: Tensor, weight: Tensor, output: Tensor, gamma: float, alpha: float
) -> None:
    """Fills ``output`` ``[N]``; ``input`` ``[N, C]`` are probabilities."""
    p = at_least_fp32(input).gather(1, target[:, None])[:, 0]
    output.copy_(-alpha * (1 - p) ** gamma * _log(p) * _class_weight(weight, target))


def softmax_focal_loss_backward(
    input: Tensor, target: Tensor, weight: Tensor, buff: Tensor, grad_input: Tensor, gamma: float, alpha: float
) -> None:
    """Fills ``grad_input`` ``[N, C]``, the gradient of the logits; ``input`` are the probabilities."""
    probabilities = at_least_fp32(input)
    p = probabilities.gather(1, target[:, None])[:, 0]
    slope = alpha * (gamma * (1 - p) ** (gamma - 1) * p * _log(p) - (1 - p) ** gamma)
    is_class = target[:, None] == torch.arange(input.shape[1], device=input.device)
    grad_input.copy_((slope * _class_weight(weight, target))[:, None] * (is_class.to(slope) - probabilities))
