"""Weights in ONNX files: LCNets and PicoDets of Paddle, and vision transformers of Hugging Face that PyTorch exported."""

from pathlib import Path
from typing import Any

import numpy as np

from mmlisa.checkpoints import CheckpointError

# Blocks of the stages 2 to 6 (ppcls/arch/backbone/legendary_models/pp_lcnet.py, NET_CONFIG).
_BLOCKS = [f"blocks{stage}.{i}" for stage, count in enumerate((1, 2, 2, 6, 2), start=2) for i in range(count)]
_NORM = ("weight", "bias", "_mean", "_variance")


def read_onnx(path: Path) -> dict[str, np.ndarray]:
    """Return the weights of a vision transformer under Hugging Face's names, or of an LCNet under Paddle's.

    Raises:
        OSError: the file cannot be read.
        CheckpointError: the file is damaged or another network.
        ImportError: the package onnx is missing.
    """
    import onnx

    try:
        graph = onnx.load(path).graph
    except OSError:
        raise
    except Exception as error:  # protobuf's errors have no common type
        raise CheckpointError(f"'{path}' is damaged or not an ONNX file") from error
    arrays = {each.name: np.array(onnx.numpy_helper.to_array(each)) for each in graph.initializer}
    if any(name.endswith("embeddings.cls_token") for name in arrays):
        return _transformer(graph, arrays, path)
    return _lcnet(_convolutions(graph, arrays), path)


def _transformer(graph: Any, arrays: dict[str, np.ndarray], path: Path) -> dict[str, np.ndarray]:
    """Name the arrays that the exporter left without a name (``onnx::…``) after the module of the node that takes them.

    These are the transposed matrices of linear layers, and the positions, that of the class token apart from those of patches.
    Other matrices without a name are a CheckpointError.
    """
    state = {name: array for name, array in arrays.items() if "::" not in name}
    unnamed = {name: array for name, array in arrays.items() if "::" in name and array.ndim > 1}
    positions: dict[str, list[np.ndarray]] = {}
    for node in graph.node:
        module = ".".join(node.name.strip("/").split("/")[:-1])
        for name in unnamed.keys() & set(node.input):
            if node.op_type == "MatMul" and module:
                state[f"{module}.weight"] = unnamed.pop(name).T.copy()
            elif module.endswith("embeddings") and unnamed[name].ndim == 3:
                positions.setdefault(f"{module}.position_embeddings", []).append(unnamed.pop(name))
    if unnamed:
        raise CheckpointError(
            f"'{path}' has {len(unnamed)} matrices that belong to no linear layer, first {min(unnamed)}"
        )
    return state | {name: np.concatenate(sorted(parts, key=np.size), axis=1) for name, parts in positions.items()}


def _lcnet(layers: list[dict[str, Any]], path: Path) -> dict[str, np.ndarray]:
    """Name the weights after the order of the convolutions; those of PicoDet's neck and head are ``behind.<number>``."""
    state: dict[str, np.ndarray] = {}

    def add(name: str, depthwise: bool) -> None:
        layer = layers.pop(0) if layers else {}
        if "norm" not in layer or depthwise != (layer["weight"].shape[1] == 1):
            found = f"a weight of shape {layer['weight'].shape}" if layer else "nothing"
            raise CheckpointError(
                f"'{path}' is not an LCNet with batch norms: '{name}' would be {found}. Of ONNX files, LCNets (PicoDet's, too) "
                "and Hugging Face's vision transformers are read"
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


def _convolutions(graph: Any, arrays: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    """Return ``weight``, ``bias`` and the four arrays of the batch norm (``norm``) of all convolutions, as they run."""
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
