"""A loaded model whose softmax attention is replaced by cells, and what that changes on a picture of the user's."""

from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from mmlisa.errors import UserError
from mmlisa.models.swap import agreement, swap

from .predictor import Predictor

_ROUNDS = 2  # of both models in turns; the faster one counts, since the first pass prepares memory


def use_cells(predictor: Predictor, image: Any) -> str:
    """Replace the model of a predictor by its copy with ``CellAttention`` if that is faster on an image.

    Args:
        predictor: a loaded model with softmax attention, see :func:`mmlisa.swap`.
        image: what ``predictor.predict`` takes.

    Returns:
        A sentence: how well the features of both agree (cosine of the tokens of the last map, less their mean), how much faster
        the backbone is, and which attention is used.
    """
    model = predictor.model
    swapped = swap(model)
    seconds = {model: float("inf"), swapped: float("inf")}
    features = {}
    for _ in range(_ROUNDS):
        for each in seconds:
            predictor.model = each
            features[each], time = _run(predictor, image)
            seconds[each] = min(seconds[each], time)
    ratio = seconds[model] / seconds[swapped]
    predictor.model = swapped if ratio > 1 else model
    if features[model].ndim != 4:
        raise UserError("--attention cells: the backbone returns no map to compare; leave it out for a classifier")
    agreed = agreement(features[swapped], features[model])
    height, width = features[model].shape[2:]
    used = "cells are used" if ratio > 1 else "softmax attention stays"
    gain = f"the backbone with cells is {ratio:.1f} times as fast"
    return f"{height}x{width} tokens: features agree to {agreed:.2f}, {gain}; {used}"


def _run(predictor: Predictor, image: Any) -> tuple[Tensor, float]:
    """Return the last map of the backbone in a prediction, and its seconds."""
    backbones = [module for name, module in predictor.model.named_modules() if name.split(".")[-1] == "backbone"]
    if not backbones:
        raise UserError(f"--attention cells: {type(predictor.model).__name__} has no backbone")
    backbone = backbones[0]
    times, maps = [], []

    def finish(module: nn.Module, inputs: Any, outputs: Any) -> None:
        _wait(outputs[-1])
        times.append(perf_counter())
        maps.append(outputs[-1].float())

    with (
        backbone.register_forward_pre_hook(lambda *_: times.append(perf_counter())),
        backbone.register_forward_hook(finish),
    ):
        predictor.predict(image)
    return maps[0], times[1] - times[0]


def _wait(tensor: Tensor) -> None:
    if tensor.is_cuda:
        torch.cuda.synchronize(tensor.device)
