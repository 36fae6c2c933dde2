"""Depthwise 3x3 convolutions whose kernels differ from image to image, as sums of shifted maps."""

import torch.nn.functional as F
from torch import Tensor


def neighbours(x: Tensor) -> list[Tensor]:
    """Return the nine shifts of a map ``[B, C, H, W]`` by one row and column, with zeros around it, in row-major order."""
    height, width = x.shape[2:]
    x = F.pad(x, (1, 1, 1, 1))
    return [x[:, :, i : i + height, j : j + width] for i in range(3) for j in range(3)]


def depthwise_per_image(x: Tensor, kernels: Tensor) -> Tensor:
    """Convolve each channel of each image with its own 3x3 kernel.

    A grouped convolution over B C channels would fix the batch size in an exported graph.

    Args:
        x: ``[B, C, H, W]``.
        kernels: ``[B, C, 9]``, in row-major order.

    Returns:
        ``[B, C, H, W]``.
    """
    return sum(kernels[:, :, i, None, None] * near for i, near in enumerate(neighbours(x)))
