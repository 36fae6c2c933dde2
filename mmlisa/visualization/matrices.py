"""Pictures of attention matrices and their ranks (FLatten, Fig. 5)."""

from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from textwrap import fill

import torch
from torch import Tensor, nn

from mmlisa.visualization.kernels import attention_rows, panels, record_calls, save

MAX_TOKENS = 1024  # a matrix has this number squared of weights per head


def attention_matrices(backbone: nn.Module, image: Tensor, layers: Sequence[int]) -> dict[str, Tensor]:
    """Return the matrices ``[h, N, N]`` by which chosen operators multiply their values; those without one are left out.

    For focused linear attention it is ``φ(Q) φ(K)ᵀ / sum + M_DWC`` (FLatten, Eq. 11).

    Args:
        backbone: a network with operators of the registry.
        image: ``[3, H, W]``, normalised.
        layers: indices into :func:`mmlisa.visualization.kernels.find_operators`, negative ones from the end.

    Raises:
        ValueError: a layer that does not exist, more tokens than :data:`MAX_TOKENS`, or no operator that has a matrix.
    """
    matrices = {}
    for name, (operator, x, grid) in record_calls(backbone, image, layers).items():
        if prod(grid) > MAX_TOKENS:
            raise ValueError(f"image: {name} has a grid of {grid}, more than {MAX_TOKENS} tokens; take a smaller image")
        if (matrix := attention_rows(operator, x, grid, range(x.shape[1]))) is not None:
            matrices[name] = matrix
    if not matrices:
        raise ValueError(f"layers={list(layers)}: no operator has queries, keys and a value for each token")
    return matrices


def rank(matrix: Tensor) -> int:
    """Return the rank by NumPy's rule: singular values above the largest times N times the precision of single floats."""
    return int(torch.linalg.matrix_rank(matrix.double(), rtol=len(matrix) * torch.finfo(torch.float32).eps))


def draw_matrices(rows: Mapping[str, Mapping[str, Tensor]], head: int, path: Path) -> None:
    """Draw the matrices of one head with their ranks, a row per layer and a column per network (FLatten, Fig. 5).

    Args:
        rows: :func:`attention_matrices` by the network's label.
        head: index of the head.
        path: file to write.

    Raises:
        ValueError: a head that does not exist.
    """
    count = max(len(matrices) for matrices in rows.values())
    figure, axes = panels(count, len(rows), 3.3, 3.6)
    for column, (label, matrices) in enumerate(rows.items()):
        for axis, (name, heads) in zip(axes[:, column], matrices.items(), strict=False):
            if not 0 <= head < len(heads):
                raise ValueError(f"head={head}; {name} of {label} has {len(heads)} heads")
            matrix = heads[head]
            # A few large weights would leave the rest without contrast.
            low, high = matrix.float().flatten().quantile(torch.tensor([0.005, 0.995])).tolist()
            shown = axis.imshow(matrix, cmap="viridis", vmin=min(low, 0), vmax=high, interpolation="nearest")
            figure.colorbar(shown, ax=axis, fraction=0.045, pad=0.02).ax.tick_params(labelsize=7)
            axis.set_title(f"{fill(label, 34)}\n{name}, head {head}: rank {rank(matrix)} of {len(matrix)}", fontsize=8)
    save(figure, path)
