"""The effect of the padding that a file of fixed size needs, and its model does not."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from .whole import EndToEnd, Exportable


def padding_effect(module: EndToEnd, size: Sequence[int]) -> tuple[tuple[int, int], float, float]:
    """Compare the maps of a detector's or segmentor's network on a random image with those on the same image, padded to a size.

    Args:
        module: its model takes images of any size.
        size: H and W of the padded image. The image has about half the height.

    Returns:
        H and W of the image, and the mean and the largest change within the image, over the range of each map.
    """
    prepare, network = module.preprocess, Exportable(module.model)
    height, width = max(size[0] // 64 * 32, min(32, size[0])), size[1]

    def run(image: Tensor) -> Sequence[Tensor]:
        pads = [pad for side in (image.shape[3], image.shape[2]) for pad in (0, -side % prepare.divisor)]
        return network(F.pad(image, pads, value=prepare.value))

    coarse = torch.rand(1, 3, 8, 8, generator=torch.Generator().manual_seed(0)) * 4 - 2
    image = F.interpolate(coarse, (height, width), mode="bilinear")
    with torch.no_grad():
        alone, padded = run(image), run(F.pad(image, (0, 0, 0, size[0] - height), value=prepare.value))
    changes = [
        (x - y[..., : x.shape[2], : x.shape[3]]).abs() / (x.max() - x.min()) for x, y in zip(alone, padded, strict=True)
    ]
    return (
        (height, width),
        torch.stack([change.mean() for change in changes]).mean().item(),
        max(change.max().item() for change in changes),
    )
