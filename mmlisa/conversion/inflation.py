"""Conversion of image weights to video weights."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from mmlisa.checkpoints import below_prefix
from mmlisa.errors import UserError

from .matching import block_of

_GRID_AXES = 3  # of a video: (T, H, W)


def inflate(state: Mapping[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """Inflate the weights of an image model for the video form of the same model (journal paper of LiSA, Sec. 5.4).

    Convolutions and LiSA's kernels get a time axis, with their taps at the temporal offset zero, so the model initially
    processes each frame like an image. Position embeddings are repeated over time. All other weights are unchanged.

    Args:
        state: weights of the image model, under the video model's names.
        model: the video model; its grid may differ from the image model's in time only.

    Raises:
        UserError: weights that do not fit the model, or more blocks than it has; the message names them.
    """
    targets = model.state_dict()
    inflated = {name: _inflate(name, tensor, targets[name]) for name, tensor in state.items() if name in targets}
    wrong = sorted(
        name for name, tensor in targets.items() if name not in inflated or inflated[name].shape != tensor.shape
    )
    if wrong:
        raise UserError(f"{len(wrong)} of {len(targets)} weights do not fit the video model, among them {wrong[:3]}")
    if lost := sorted({block_of(name) for name in state} - {block_of(name) for name in targets} - {None}):
        raise UserError(f"the video model lacks {len(lost)} blocks of the image model, among them {lost[:3]}")
    return inflated


def inflate_classifier(state: Mapping[str, Tensor], backbone: nn.Module) -> dict[str, Tensor]:
    """Inflate the backbone's weights of an image classifier for ``backbone``, under the classifier's names; not the head's."""
    weights = below_prefix(state, "backbone.")
    return {f"backbone.{name}": tensor for name, tensor in inflate(weights, backbone).items()}


def _inflate(name: str, source: Tensor, target: Tensor) -> Tensor:
    if source.ndim != target.ndim - 1:
        return source
    axis = target.ndim - _GRID_AXES
    length = target.shape[axis]
    repeated = source.unsqueeze(axis).expand(*source.shape[:axis], length, *source.shape[axis:])
    parameter = name.rpartition(".")[2]
    if parameter == "position_embedding":
        return repeated.clone()
    # The origin of LiSA's circular kernels has the index 0; the origin of a convolution is its middle.
    origin = 0 if parameter in ("kernel_a", "kernel_b") else length // 2
    return torch.zeros_like(repeated).index_copy_(axis, torch.tensor([origin]), source.unsqueeze(axis))
