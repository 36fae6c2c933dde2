"""Pictures of feature maps: the three main components of the tokens as red, green and blue (Oquab et al., "DINOv2", Fig. 1)."""

from collections.abc import Mapping
from pathlib import Path
from textwrap import fill

import torch
from matplotlib.figure import Figure  # not pyplot, which holds global state
from torch import Tensor, nn

from .kernels import BARE

_CLIPPED = 0.01  # share of the tokens beyond either end of the scale, so that a few outliers do not leave it grey


def last_map(backbone: nn.Module, image: Tensor) -> Tensor:
    """Return the last map of a backbone, ``[C, h, w]``, of a normalised image ``[3, H, W]``."""
    with torch.no_grad():
        return backbone(image[None])[-1][0].float()


def main_components(features: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean ``[C, 1]`` of the tokens of a map ``[C, h, w]``, and their three main components ``[C, 3]``.

    The sign of a component is that of its largest entry, since a decomposition returns either one.
    """
    tokens = features.flatten(1)
    mean = tokens.mean(1, keepdim=True)
    components = torch.linalg.svd(tokens - mean, full_matrices=False).U[:, :3]
    largest = components.gather(0, components.abs().argmax(0, keepdim=True))
    return mean, components * largest.sign()


def colours(features: Tensor, mean: Tensor, components: Tensor) -> Tensor:
    """Return a picture ``[h, w, 3]`` from 0 to 1: the tokens of a map along the components, each on a scale of its own."""
    values = components.T @ (features.flatten(1) - mean)
    low, high = values.quantile(torch.tensor([_CLIPPED, 1 - _CLIPPED]), dim=1)[..., None]
    scaled = (values - low) / (high - low).clamp(min=1e-12)
    return scaled.clamp(0, 1).unflatten(1, features.shape[1:]).permute(1, 2, 0)


def draw_features(picture: Tensor, maps: Mapping[str, Tensor], path: Path) -> None:
    """Draw the picture ``[3, H, W]`` and, beside it, each map ``[C, h, w]`` under its label.

    Maps of as many channels as the first have its components, so that their colours can be compared.
    """
    height, width = picture.shape[1:]
    titles = [_title(label, features) for label, features in maps.items()]
    lines = 1 + max(title.count("\n") for title in titles)
    columns = 1 + len(maps)
    figure = Figure(figsize=(4 * columns, 4 * height / width + 0.2 * (lines + 1)), layout="constrained")
    axes = figure.subplots(1, columns, **BARE)[0]
    axes[0].imshow(picture.permute(1, 2, 0))
    first = next(iter(maps.values()))
    shared = main_components(first)
    for axis, title, features in zip(axes[1:], titles, maps.values(), strict=True):
        basis = shared if len(features) == len(first) else main_components(features)
        axis.imshow(colours(features, *basis), interpolation="nearest", extent=(0, width, height, 0))
        axis.set_title(title, fontsize=8)
    figure.savefig(path, dpi=150)


def _title(label: str, features: Tensor) -> str:
    height, width = features.shape[1:]
    return f"{fill(label, 45)}\n{height}x{width} tokens"
