"""Weights in the authors' names, filled from the name of each entry, and what the authors' networks return with them.

``goldens/NAME.keys.json`` holds the names and shapes of a state dict, ``goldens/NAME.npz`` the outputs.
"""

import json
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

FOLDER = Path(__file__).parent / "goldens"
BUFFERS = ("rotations", "relative_position_index", "attn_mask", "num_batches_tracked")


def state_dict(name: str) -> dict[str, Tensor]:
    """The weights of the golden ``name``; the buffers, which the conversion drops or which do not matter, are zeros."""
    shapes = json.loads((FOLDER / f"{name}.keys.json").read_text())
    return {key: torch.from_numpy(np.asarray(values(key, shape), np.float32)) for key, shape in shapes.items()}


def dense_names(name: str) -> dict[str, Tensor]:
    """A classifier's weights as the dense networks' files name them: a norm for each map, in place of the classifier's."""
    state = {key: t for key, t in state_dict(name).items() if not key.startswith(("norm.", "head."))}
    for i in range(4):
        for kind in ("weight", "bias"):
            shape = list(state[f"layers.{i}.blocks.0.norm1.weight"].shape)
            state[f"norm{i}.{kind}"] = torch.from_numpy(values(f"norm{i}.{kind}", shape))
    return {key.replace(".rope.", ".attn.rope."): tensor for key, tensor in state.items()}


def outputs(name: str) -> dict[str, np.ndarray]:
    return dict(np.load(FOLDER / f"{name}.npz"))


def image(height: int, width: int) -> Tensor:
    """The input of the goldens, ``[1, 3, H, W]``."""
    return torch.from_numpy(np.random.RandomState(7).standard_normal((1, 3, height, width)).astype(np.float32))


def values(key: str, shape: list[int]) -> np.ndarray:
    leaf = key.rpartition(".")[2]
    if leaf in BUFFERS:
        return np.zeros(shape)
    draw = np.random.RandomState(zlib.crc32(key.encode())).standard_normal(shape).astype(np.float32)
    if leaf.startswith(("positional_encoding", "pos_embed", "relative_position_bias_table")):
        return 0.2 * draw
    if leaf == "scale":
        return 0.3 * draw
    if leaf == "power" or key.endswith("attn.qkv.bias"):
        return draw
    if leaf in ("bias", "running_mean"):
        return 0.1 * draw
    if len(shape) == 1:
        return 1 + 0.1 * draw
    if leaf in ("w1", "w2"):
        return 2 * draw / shape[2]
    return draw / np.sqrt(np.prod(shape[1:])) * (0.1 if ".cpe" in key else 1)
