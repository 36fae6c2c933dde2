"""Ranks of attention matrices (FLatten, Fig. 5) and differences between heads (iViT, Figs. 6 and 7)."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import prod
from pathlib import Path
from textwrap import fill
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from figures.kernels import find_operators, find_tail, record_calls, save

MAX_TOKENS = 1024  # of a matrix, which has this number squared of weights per head
_BATCH = 64  # columns computed at a time


class HeadStatistics(NamedTuple):
    """Differences between the attention matrices of a layer's heads.

    Attributes:
        variance: over the heads, of the weights times the number of tokens (so that uniform attention is 1 on any grid),
            averaged over all pairs of tokens.
        similarity: cosine of the angle between two heads' matrices, averaged over all pairs of heads; 1 for a single head.
    """

    variance: float
    similarity: float


def attention_matrix(operator: nn.Module, x: Tensor, grid: Sequence[int]) -> Tensor | None:
    """Return the matrices by which an operator multiplies its values, with queries and keys fixed.

    Row i has the weights of all values in the output of token i. The operator runs on values that are 1 for one token and 0
    for the others, so the matrix includes every operation on the values. For focused linear attention it is
    ``φ(Q) φ(K)ᵀ / sum + M_DWC`` (FLatten, Eq. 11).

    Args:
        operator: an operator of the registry, in evaluation mode, linear in its values.
        x: its input, ``[1, N, C]``.
        grid: size of its grid of tokens.

    Returns:
        ``[h, N, N]``, for the first channel of each head; None where the operator has no values of its own for each token
        (convolutions, filters, windows).
    """
    if not (hasattr(operator, "qkv") and hasattr(operator, "num_heads")):
        return None
    tokens = x.shape[1]
    nothing = _gather(operator, x, grid, torch.zeros(1, tokens, dtype=x.dtype))
    if nothing is None:
        return None
    columns = torch.eye(tokens, dtype=x.dtype).split(_BATCH)  # of values
    outputs = torch.cat([_gather(operator, x, grid, some) for some in columns])
    return (outputs - nothing).permute(2, 1, 0)


@torch.no_grad()
def _gather(operator: nn.Module, x: Tensor, grid: Sequence[int], values: Tensor) -> Tensor | None:
    """Return the output before the last norm, gate and projection in the first channel of each head, ``[B, N, h]``.

    ``values`` ``[B, N]`` replace the values in that channel; the other channels get zeros.
    """
    found: list[Tensor] = []

    def replace_values(module: nn.Module, inputs: tuple, output: Tensor) -> Tensor:
        query, key, value = output.chunk(3, dim=-1)
        replaced = torch.zeros_like(value).unflatten(-1, (operator.num_heads, -1))
        if replaced.shape[:2] == values.shape:  # a window has fewer tokens
            replaced[..., 0] = values[..., None]
        return torch.cat([query, key, replaced.flatten(2)], dim=-1)

    def keep(module: nn.Module, inputs: tuple) -> None:
        found.append(inputs[-1])

    hooks = [operator.qkv.register_forward_hook(replace_values)]
    hooks += [module.register_forward_pre_hook(keep) for module in find_tail(operator)]
    try:
        output = operator(x.expand(len(values), -1, -1), grid)
    finally:
        for hook in hooks:
            hook.remove()
    gathered = found[0] if found else output
    if gathered.shape != (*values.shape, x.shape[2]):
        return None
    return gathered.unflatten(-1, (operator.num_heads, -1))[..., 0]


def attention_matrices(backbone: nn.Module, image: Tensor, layers: Sequence[int] | None = None) -> dict[str, Tensor]:
    """Return the matrices ``[h, N, N]`` of a backbone's operators by their names, in order. Operators without one are left out.

    Args:
        backbone: a network with operators of the registry.
        image: ``[3, H, W]``, normalised.
        layers: indices into :func:`figures.kernels.find_operators`, negative ones from the end; None for all.

    Raises:
        ValueError: a layer that does not exist, more tokens than :data:`MAX_TOKENS`, or no operator that has a matrix.
    """
    operators = list(find_operators(backbone).items())
    if layers is not None and not all(-len(operators) <= layer < len(operators) for layer in layers):
        raise ValueError(f"layers={list(layers)}; {type(backbone).__name__} has {len(operators)} operators")
    chosen = operators if layers is None else [operators[layer] for layer in layers]
    matrices = {}
    for (name, operator), call in zip(chosen, record_calls(backbone, image, [m for _, m in chosen]), strict=True):
        if prod(call.grid) > MAX_TOKENS:
            raise ValueError(
                f"{name} has {prod(call.grid)} tokens on its grid {call.grid}, and matrices of more than {MAX_TOKENS} are not "
                "formed; take a smaller image or a later layer"
            )
        matrix = attention_matrix(operator, call.x, call.grid)
        if matrix is not None:
            matrices[name] = matrix
    if not matrices:
        raise ValueError(f"none of {[name for name, _ in chosen]} has queries, keys and a value for each token")
    return matrices


def rank(matrix: Tensor) -> int:
    """Return the rank by NumPy's rule: singular values above the largest times N times the precision of single floats."""
    tolerance = matrix.shape[-1] * torch.finfo(torch.float32).eps
    return int(torch.linalg.matrix_rank(matrix.double(), rtol=tolerance))


def head_statistics(matrices: Tensor) -> HeadStatistics:
    """Return the statistics of a layer's matrices ``[h, N, N]``."""
    heads, tokens, _ = matrices.shape
    variance = (matrices * tokens).var(dim=0, unbiased=False).mean().item()
    flat = F.normalize(matrices.flatten(1), dim=1)
    cosines = [(flat[i] @ flat[j]).item() for i, j in combinations(range(heads), 2)]
    return HeadStatistics(variance, sum(cosines) / len(cosines) if cosines else 1.0)


def draw_matrices(rows: Mapping[str, Mapping[str, Tensor]], head: int, path: Path) -> None:
    """Draw the matrices of one head with their ranks, a row per layer and a column per network (FLatten, Fig. 5).

    Args:
        rows: :func:`attention_matrices` by the network's label.
        head: index of the head.
        path: file to write.

    Raises:
        ValueError: a head that does not exist.
    """
    from matplotlib.figure import Figure

    count = max(len(matrices) for matrices in rows.values())
    figure = Figure(figsize=(3.3 * len(rows) + 0.5, 3.6 * count), layout="constrained")
    axes = figure.subplots(count, len(rows), squeeze=False)
    for axis in axes.flat:
        axis.set_axis_off()
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


def draw_head_statistics(rows: Mapping[str, Mapping[str, Tensor]], path: Path) -> None:
    """Draw variance and similarity of the heads over the depth, a line per network (iViT, Figs. 6b and 7).

    Args:
        rows: :func:`attention_matrices` by the network's label.
        path: file to write.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.2), layout="constrained")
    axes = figure.subplots(1, 2)
    for label, matrices in rows.items():
        statistics = [head_statistics(heads) for heads in matrices.values()]
        for axis, values in zip(axes, zip(*statistics, strict=True), strict=True):
            axis.plot(range(1, len(values) + 1), values, marker="o", label=label)
    for axis, name in zip(axes, ("variance over the heads", "cosine similarity of two heads"), strict=True):
        axis.set(xlabel="layer with attention", ylabel=name)
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(rows), frameon=False)
    save(figure, path)
