"""Weights of an LCNet in an ONNX file, the form in which trained LCNets and PicoDets of Paddle are shipped."""

from pathlib import Path
from typing import Any

import numpy as np

from mmlisa.checkpoints import CheckpointError

# Blocks of the stages 2 to 6 (ppcls/arch/backbone/legendary_models/pp_lcnet.py, NET_CONFIG).
_BLOCKS = [f"blocks{stage}.{i}" for stage, count in enumerate((1, 2, 2, 6, 2), start=2) for i in range(count)]
_NORM = ("weight", "bias", "_mean", "_variance")


def read_lcnet(path: Path) -> dict[str, np.ndarray]:
    """Return the weights of an LCNet under Paddle's names, which follow from the order of the convolutions.

    Convolutions behind the LCNet, such as those of PicoDet's neck and head, are named ``behind.<number>``.

    Raises:
        CheckpointError: the file is damaged or another network.
        ImportError: the package onnx is missing.
    """
    layers = _convolutions(path)
    state: dict[str, np.ndarray] = {}

    def add(name: str, depthwise: bool) -> None:
        layer = layers.pop(0) if layers else {}
        if "norm" not in layer or depthwise != (layer["weight"].shape[1] == 1):
            found = f"a weight of shape {layer['weight'].shape}" if layer else "nothing"
            raise CheckpointError(
                f"'{path}' is not an LCNet with batch norms: '{name}' would be {found}. Of ONNX files, only LCNet and PicoDet's "
                "LCNet are read"
            )
        state[f"{name}.conv.weight"] = layer["weight"]
        state.update((f"{name}.bn.{part}", array) for part, array in zip(_NORM, layer["norm"], strict=True))

    add("conv1", depthwise=False)
    for block in _BLOCKS:
        add(f"{block}.dw_conv", depthwise=True)
        if len(layers) > 1 and "norm" not in layers[0] and "norm" not in layers[1]:
            for part in ("conv1", "conv2"):  # squeeze and excitation
                layer = layers.pop(0)
                state[f"{block}.se.{part}.weight"] = layer["weight"]
                state[f"{block}.se.{part}.bias"] = layer["bias"]
        add(f"{block}.pw_conv", depthwise=False)
    return state | {f"behind.{i}": layer["weight"] for i, layer in enumerate(layers)}


def _convolutions(path: Path) -> list[dict[str, Any]]:
    """Return ``weight``, ``bias`` and the four arrays of the batch norm (``norm``) of all convolutions, as they run."""
    import onnx

    try:
        graph = onnx.load(path).graph
    except Exception as error:  # protobuf's errors have no common type
        raise CheckpointError(f"'{path}' is damaged or not an ONNX file") from error
    arrays = {each.name: np.array(onnx.numpy_helper.to_array(each)) for each in graph.initializer}
    made: dict[str, dict[str, Any]] = {}  # by the name of a convolution's output
    for node in graph.node:
        constants = [arrays[name] for name in node.input if name in arrays]
        layer = next((made[name] for name in node.input if name in made), None)
        if node.op_type == "Conv" and constants:
            made[node.output[0]] = dict(zip(("weight", "bias"), constants, strict=False))
        elif node.op_type in ("Reshape", "Unsqueeze", "Identity") and node.input[0] in arrays:
            arrays[node.output[0]] = arrays[node.input[0]]
        elif node.op_type == "Add" and layer and constants:
            layer["bias"] = constants[0].reshape(-1)
        elif node.op_type == "BatchNormalization" and layer:
            layer["norm"] = constants
    return list(made.values())
