"""Pictures of attention kernels (LiSA, Figs. 4 and 8), and of attention matrices with their ranks (FLatten, Fig. 5).

Pictures are ``[3, H, W]``, RGB, uint8. Queries are relative positions (y, x) in a picture, from 0 to 1.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from itertools import product
from math import prod
from pathlib import Path
from textwrap import fill

import numpy as np
import torch
from matplotlib.figure import Figure  # not pyplot, which holds global state
from mmengine.model import BaseModule
from torch import Tensor, nn

from mmlisa.errors import UserError
from mmlisa.models.attention import TTTAttention
from mmlisa.models.backbones.base import Backbone
from mmlisa.registry import MODELS

MAX_TOKENS = 1024  # a matrix has this number squared of weights per head
BARE = dict(squeeze=False, subplot_kw=dict(frame_on=False, xticks=[], yticks=[]))
Query = tuple[float, float]


def find_operators(model: nn.Module) -> dict[str, nn.Module]:
    """Return the attention operators of a model by their names, in order: registered modules that are not networks.

    Those behind the last map that a backbone returns are left out, because they never run.
    """
    registered = tuple(MODELS.module_dict.values())
    idle = model.stages[model.out_indices[-1] + 1 :].modules() if isinstance(model, Backbone) else ()
    named = model.named_modules(memo=set(idle))
    return {name: m for name, m in named if isinstance(m, registered) and not isinstance(m, BaseModule)}


def _calls(backbone: nn.Module, image: Tensor, layers: Sequence[int]) -> dict[str, tuple[nn.Module, Tensor, tuple]]:
    """Run a backbone, and return chosen operators by their names, with their inputs ``[1, N, C]`` and grids."""
    operators = list(find_operators(backbone).items())
    if not all(-len(operators) <= layer < len(operators) for layer in layers):
        raise UserError(f"layers={list(layers)}; {type(backbone).__name__} has {len(operators)} attentions")
    chosen = dict(operators[layer] for layer in layers)
    calls = {}

    def note(module: nn.Module, inputs: tuple) -> None:
        calls[module] = module, inputs[0].detach(), tuple(inputs[1])

    with ExitStack() as stack, torch.no_grad():
        for operator in chosen.values():
            stack.enter_context(operator.register_forward_pre_hook(note))
        backbone(image[None])
    return {name: calls[operator] for name, operator in chosen.items()}


def attention_kernels(
    backbone: nn.Module, image: Tensor, layers: Sequence[int], queries: Sequence[Query]
) -> dict[str, Tensor]:
    """Return the kernels ``[Q, h, H, W]`` of chosen layers for Q queries by the layers' names; see :func:`attention_kernel`.

    ``image`` is ``[3, H, W]``, normalised. ``layers`` are indices into :func:`find_operators`; one that does not exist is a
    UserError.
    """
    kernels = {}
    for name, (operator, x, grid) in _calls(backbone, image, layers).items():
        places = [[min(int(p * n), n - 1) for p, n in zip(query, grid, strict=True)] for query in queries]
        kernels[name] = torch.stack([attention_kernel(operator, x, grid, y * grid[1] + column) for y, column in places])
    return kernels


def attention_kernel(operator: nn.Module, x: Tensor, grid: Sequence[int], token: int) -> Tensor:
    """Return the weights ``[h, *grid]`` of all tokens' values in the output of an operator for ``token``, counted without prefix.

    See :func:`attention_rows`. For operators without rows (convolutions, filters, windows, shares of the channels) the result is
    the magnitude of the gradient by their input ``x`` ``[1, N, C]``, ``[1, *grid]``.
    """
    prefix = x.shape[1] - prod(grid)
    rows = attention_rows(operator, x, grid, [prefix + token])
    if rows is not None:
        return rows[:, 0, prefix:].unflatten(1, tuple(grid))
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(operator(leaf, grid)[0, prefix + token].sum(), leaf)
    return gradient[0, prefix:].norm(dim=1).reshape(1, *grid)


def attention_rows(operator: nn.Module, x: Tensor, grid: Sequence[int], tokens: Iterable[int]) -> Tensor | None:
    """Return the weights of all values in the outputs of ``tokens``, ``[h, len(tokens), N]``, with queries and keys fixed.

    A row is the gradient by the values, averaged over the channels of a head. It is exact if the operator is linear in its
    values, as softmax (a row of weights) and LiSA (``sum_d s_d W^b_d``) are. It includes convolutions and factors of the values.
    The result is None for an operator without a ``qkv`` projection that has values for each token.
    """
    if not (hasattr(operator, "qkv") and hasattr(operator, "num_heads")) or isinstance(operator, TTTAttention):
        return None  # the last third of what ViT³ projects is not its values
    with torch.enable_grad():
        values, y = _values_and_output(operator, x, grid)
        if y.shape != values.shape or values.shape[1] != x.shape[1]:
            return None
        gradients = [torch.autograd.grad(y[0, token].sum(), values, retain_graph=True)[0][0] for token in tokens]
    return torch.stack(gradients).unflatten(2, (operator.num_heads, -1)).mean(3).permute(2, 0, 1)


def _values_and_output(operator: nn.Module, x: Tensor, grid: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return the operator's values, as a leaf of autograd, and its output before the last norm, gate and projection."""
    captured: dict[str, Tensor] = {}

    def replace_values(module: nn.Module, inputs: tuple, output: Tensor) -> Tensor:
        query, key, value = output.detach().chunk(3, dim=-1)
        captured["values"] = value.clone().requires_grad_()
        return torch.cat([query, key, captured["values"]], dim=-1)

    def capture(module: nn.Module, inputs: tuple) -> None:
        # The first of these modules that is called has the attention's output as its last input, behind a gate's tokens.
        captured.setdefault("output", inputs[-1])

    with ExitStack() as stack:
        stack.enter_context(operator.qkv.register_forward_hook(replace_values))
        for name in {"norm", "proj", "output"} & dict(operator.named_children()).keys():
            stack.enter_context(operator.get_submodule(name).register_forward_pre_hook(capture))
        output = operator(x.detach(), grid)
    return captured["values"], captured.get("output", output)


def attention_matrices(backbone: nn.Module, image: Tensor, layers: Sequence[int]) -> dict[str, Tensor]:
    """Return the matrices ``[h, N, N]`` by which chosen operators multiply their values; operators without one are left out.

    The matrix of focused linear attention is ``φ(Q) φ(K)ᵀ / sum + M_DWC`` (FLatten, Eq. 11). More than :data:`MAX_TOKENS`
    tokens and no matrix at all are UserErrors.
    """
    matrices = {}
    for name, (operator, x, grid) in _calls(backbone, image, layers).items():
        if prod(grid) > MAX_TOKENS:
            raise UserError(f"image: {name} has a grid of {grid}, more than {MAX_TOKENS} tokens; take a smaller image")
        if (matrix := attention_rows(operator, x, grid, range(x.shape[1]))) is not None:
            matrices[name] = matrix
    if not matrices:
        raise UserError(f"layers={list(layers)}: no operator has queries, keys and a value for each token")
    return matrices


def rank(matrix: Tensor) -> int:
    """Return the rank by NumPy's rule: singular values above the largest times N times the precision of single floats."""
    return int(torch.linalg.matrix_rank(matrix.double(), rtol=len(matrix) * torch.finfo(torch.float32).eps))


def draw_kernels(
    picture: Tensor,
    queries: Sequence[Query],
    rows: Sequence[tuple[str, Mapping[str, Tensor]]],
    heads: Sequence[int],
    path: Path,
) -> None:
    """Draw kernels over the grey picture, a row per query and network, a column per layer and head (LiSA, Figs. 4 and 8).

    Red adds, blue subtracts, and opacity is the weight over the largest of the panel; a ring marks the query. ``rows`` holds the
    label and the :func:`attention_kernels` of each network. Panels of heads that a layer lacks stay empty.
    """
    height, width = picture.shape[1:]
    columns = 1 + max(len(kernels) for _, kernels in rows) * len(heads)
    lines = len(queries) * len(rows)
    figure = Figure(figsize=(2 * columns, (2 * height / width + 0.45) * lines), layout="constrained")
    axes = figure.subplots(lines, columns, **BARE)
    for line, ((number, (y, x)), (label, kernels)) in zip(axes, product(enumerate(queries), rows), strict=True):
        line[0].imshow(picture.permute(1, 2, 0))
        line[0].set_title(fill(label.replace("_", " "), 28), fontsize=7)
        for axis, ((name, kernel), head) in zip(line[1:], product(kernels.items(), heads), strict=False):
            if head < kernel.shape[1]:
                weights = kernel[number, head] / kernel[number, head].abs().max().clamp(min=1e-12)
                axis.imshow(picture.float().mean(0), "gray", vmin=-230, vmax=280)  # faded
                over = dict(alpha=weights.abs().numpy(), interpolation="bicubic", extent=(0, width, height, 0))
                axis.imshow(weights, "RdBu_r", vmin=-1, vmax=1, **over)
                axis.set_title(f"{name}\nhead {head}, {'x'.join(map(str, weights.shape))} tokens", fontsize=7)
        rings = dict(s=(60, 35), facecolors="none", edgecolors=("black", "white"))
        for axis in filter(lambda axis: axis.images, line):
            axis.scatter([x * width] * 2, [y * height] * 2, **rings)
    figure.savefig(path, dpi=150)


def draw_matrices(columns: Mapping[str, Mapping[str, Tensor]], head: int, path: Path) -> None:
    """Draw the matrices of one head, by the network's label, with their ranks, a row per layer (FLatten, Fig. 5)."""
    layers = max(map(len, columns.values()))
    figure = Figure(figsize=(3.3 * len(columns), 3.6 * layers), layout="constrained")
    axes = figure.subplots(layers, len(columns), **BARE)
    for column, (label, matrices) in zip(axes.T, columns.items(), strict=True):
        for axis, (name, heads) in zip(column, matrices.items(), strict=False):
            matrix = heads[head]
            # A few large weights would leave the others without contrast.
            low, high = np.quantile(matrix.numpy(), (0.005, 0.995))
            drawn = axis.imshow(matrix, cmap="viridis", vmin=min(low, 0), vmax=high, interpolation="nearest")
            figure.colorbar(drawn, ax=axis, fraction=0.045, pad=0.02).ax.tick_params(labelsize=7)
            axis.set_title(f"{fill(label, 34)}\n{name}, head {head}: rank {rank(matrix)} of {len(matrix)}", fontsize=8)
    figure.savefig(path, dpi=150)
