"""Convolution at some pixels only: im2col at them, and back into the map."""

import torch
from torch import Tensor
from torch.nn.functional import pad


def masked_im2col_forward(
    im: Tensor,
    mask_h_idx: Tensor,
    mask_w_idx: Tensor,
    col: Tensor,
    kernel_h: int,
    kernel_w: int,
    pad_h: int,
    pad_w: int,
) -> None:
    """Fills ``col`` ``[C * kernel_h * kernel_w, M]`` with the windows of ``im`` ``[1, C, H, W]`` around M pixels."""
    padded = pad(im[0], (pad_w, kernel_w, pad_h, kernel_h))  # far enough to the right and below for any pixel
    rows = torch.arange(kernel_h, device=im.device)[:, None, None] + mask_h_idx
    columns = torch.arange(kernel_w, device=im.device)[:, None] + mask_w_idx
    col.copy_(padded[:, rows, columns].view_as(col))


def masked_col2im_forward(
    col: Tensor, mask_h_idx: Tensor, mask_w_idx: Tensor, im: Tensor, height: int, width: int, channels: int
) -> None:
    """Writes ``col`` ``[C, M]`` to M pixels of ``im`` ``[1, C, height, width]``."""
    im[0, :, mask_h_idx, mask_w_idx] = col.to(im.dtype)
