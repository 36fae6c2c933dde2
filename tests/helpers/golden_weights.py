"""Weights in the authors' names, filled from the name of each entry, and what the authors' networks return with them.

``goldens/NAME.keys.json`` holds the names and shapes of a state dict, ``goldens/NAME.npz`` the outputs. Those of ``vit3_t``,
``pola_pvt_t`` and ``h_vittt_t_maps`` are of the networks written out as functions of the file, in fp64, a form that gives the
authors' logits of ``h_vittt_t``; the git history keeps it in tests/conversion/test_written_out.py. The layouts of PaddleDetection
follow its release 2.6 line by line, in the history of tests/conversion/test_paddle.py.
"""

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

FOLDER = Path(__file__).parent / "goldens"
BUFFERS = ("rotations", "relative_position_index", "attn_mask", "num_batches_tracked")


def shapes(name: str) -> dict[str, Any]:
    """Names and shapes of the golden ``name``; of ``official_flatten``, those of each model."""
    return json.loads((FOLDER / f"{name}.keys.json").read_text())


def filled(shapes: dict[str, list[int]], dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """Weights of these shapes; the buffers, which the conversion drops or which do not matter, are zeros."""
    return {key: torch.as_tensor(values(key, shape), dtype=dtype) for key, shape in shapes.items()}


def state_dict(name: str) -> dict[str, Tensor]:
    return filled(shapes(name))


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
