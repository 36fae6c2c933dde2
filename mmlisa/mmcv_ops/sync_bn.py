"""Local parts of batch normalisation over several processes. Inputs are ``[B, C, L]``, statistics ``[C]``."""

from torch import Tensor


def sync_bn_forward_mean(input: Tensor, mean: Tensor) -> None:
    mean.copy_(input.float().mean((0, 2)))


def sync_bn_forward_var(input: Tensor, mean: Tensor, var: Tensor) -> None:
    var.copy_((input.float() - mean[:, None]).square().mean((0, 2)))


def sync_bn_forward_output(*tensors: Tensor, eps: float, momentum: float, group_size: int) -> None:
    """Fill ``norm`` and ``output`` ``[B, C, L]`` and ``std``, and update the running statistics."""
    input, mean, var, weight, bias, running_mean, running_var, norm, std, output = tensors
    std.copy_((var + eps).sqrt())
    norm.copy_((input.float() - mean[:, None]) / std[:, None])
    output.copy_(norm * weight[:, None] + bias[:, None])
    count = input.shape[0] * input.shape[2] * group_size
    unbiased = var * count / (count - 1) if count > 1 else var
    running_mean.lerp_(mean, float(momentum))
    running_var.lerp_(unbiased, float(momentum))


def sync_bn_backward_param(grad_output: Tensor, norm: Tensor, grad_weight: Tensor, grad_bias: Tensor) -> None:
    grad_weight.copy_((grad_output.float() * norm).sum((0, 2)))
    grad_bias.copy_(grad_output.float().sum((0, 2)))


def sync_bn_backward_data(*tensors: Tensor) -> None:
    grad_output, weight, grad_weight, grad_bias, norm, std, grad_input = tensors
    count = grad_output.shape[0] * grad_output.shape[2]
    mean = (grad_weight[:, None] * norm + grad_bias[:, None]) / count
    grad_input.copy_((weight / std)[:, None] * (grad_output.float() - mean))
