"""PSANet's masks (https://hszhao.github.io/papers/eccv18_psanet.pdf): from positions relative to a pixel to absolute ones."""

import torch
from torch import Tensor

_COLLECT = 0  # psa_type; 1 distributes


def _absolute(mask: Tensor, size: int, half: int, dim: int) -> Tensor:
    """Replaces axis ``dim`` of ``mask``, distances to axis ``dim + 2`` plus ``half``, by positions 0 … size - 1."""
    position = torch.arange(size, device=mask.device)
    index = position[:, None] - position + half
    inside = (index >= 0) & (index < mask.shape[dim])
    shape = [1] * mask.dim()
    shape[dim] = shape[dim + 2] = size
    expanded = list(mask.shape)
    expanded[dim] = size
    return mask.gather(dim, index.clamp(0, mask.shape[dim] - 1).view(shape).expand(expanded)) * inside.view(shape)


def _psa_mask(mask: Tensor, psa_type: int, h_mask: int, w_mask: int, half_h_mask: int, half_w_mask: int) -> Tensor:
    """``[B, h_mask * w_mask, H, W]`` -> ``[B, H * W, H, W]``, zero out of the mask's reach."""
    batch, _, height, width = mask.shape
    mask = mask.view(batch, h_mask, w_mask, height, width)
    mask = _absolute(_absolute(mask, height, half_h_mask, dim=1), width, half_w_mask, dim=2)
    mask = mask.view(batch, height * width, height * width)
    return (mask if psa_type == _COLLECT else mask.transpose(1, 2)).reshape(batch, -1, height, width)


def psamask_forward(
    input: Tensor,
    output: Tensor,
    psa_type: int,
    num_: int,
    h_feature: int,
    w_feature: int,
    h_mask: int,
    w_mask: int,
    half_h_mask: int,
    half_w_mask: int,
) -> None:
    output.copy_(_psa_mask(input, psa_type, h_mask, w_mask, half_h_mask, half_w_mask))


def psamask_backward(
    grad_output: Tensor,
    grad_input: Tensor,
    psa_type: int,
    num_: int,
    h_feature: int,
    w_feature: int,
    h_mask: int,
    w_mask: int,
    half_h_mask: int,
    half_w_mask: int,
) -> None:
    size = (psa_type, h_mask, w_mask, half_h_mask, half_w_mask)
    grad_input.copy_(torch.func.vjp(lambda mask: _psa_mask(mask, *size), grad_input)[1](grad_output)[0])
