"""Pictures of attention kernels (LiSA, Figs. 4 and 8), and of attention matrices with their ranks (FLatten, Fig. 5)."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from itertools import product
from math import prod
from pathlib import Path
from textwrap import fill

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure  # not pyplot, which holds global state
from mmengine.model import BaseModule
from PIL import Image
from torch import Tensor, nn

from mmlisa import runtime
from mmlisa.errors import UserError
from mmlisa.export.whole import takes_rgb
from mmlisa.models.attention import TTTAttention
from mmlisa.models.backbones.base import Backbone
from mmlisa.registry import MODELS
from mmlisa.visualization.overlays import enlarge

MAX_TOKENS = 1024  # a matrix has this number squared of weights per head
KERNEL_SIDE = 320  # pixels of the longer side of a drawn kernel
ADDS, SUBTRACTS = (178, 24, 43), (33, 102, 172)  # colours of the largest weights


def network_input(picture: Tensor, preprocessor: nn.Module) -> Tensor:
    """Return a picture as a data preprocessor passes it to the network: in its order of channels, and normalised if it does so.

    Args:
        picture: ``[3, H, W]``, RGB from 0 to 255.
        preprocessor: data preprocessor of a model of mmdet, mmseg or mmpretrain, whose pipelines read images as BGR.
    """
    image = (picture if takes_rgb(preprocessor) else picture.flip(0)).to(preprocessor.device)
    if not hasattr(preprocessor, "mean"):
        return image
    return (image - preprocessor.mean.reshape(-1, 1, 1)) / preprocessor.std.reshape(-1, 1, 1)


def read_image(path: str | Path, size: tuple[int, int] | None = None) -> Tensor:
    """Read an image file as ``[3, H, W]``, RGB from 0 to 255, resized to ``size`` (H, W) if it is given."""
    image = Image.fromarray(runtime.read_image(path))
    if size is not None:
        image = image.resize((size[1], size[0]), Image.Resampling.BICUBIC)
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).float()


def find_operators(model: nn.Module) -> dict[str, nn.Module]:
    """Return the attention operators of a model by their names, in order: registered modules that are not networks.

    Those behind the last map that a backbone returns are left out, because they never run.
    """
    registered = tuple(MODELS.module_dict.values())
    idle = model.stages[model.out_indices[-1] + 1 :].modules() if isinstance(model, Backbone) else ()
    named = model.named_modules(memo=set(idle))
    return {name: m for name, m in named if isinstance(m, registered) and not isinstance(m, BaseModule)}


def attention_kernels(
    backbone: nn.Module, image: Tensor, layers: Sequence[int], queries: Sequence[tuple[float, float]]
) -> dict[str, Tensor]:
    """Return the kernels ``[Q, h, *grid]`` of chosen layers for Q query pixels by name; see :func:`attention_kernel`.

    Args:
        backbone: a network with operators of the registry.
        image: ``[3, H, W]``, normalised.
        layers: indices into :func:`find_operators`; negative ones count from the end.
        queries: relative positions (y, x) in the image, from 0 to 1.

    Raises:
        UserError: a layer that does not exist, or a query outside of the image.
    """
    if not all(0 <= position <= 1 for query in queries for position in query):
        raise UserError(f"queries={list(queries)}; positions lie between 0 and 1 of the image's height and width")
    return {
        name: torch.stack([attention_kernel(op, x, grid, query_token(grid, query)) for query in queries])
        for name, (op, x, grid) in record_calls(backbone, image, layers).items()
    }


def record_calls(backbone: nn.Module, image: Tensor, layers: Sequence[int]) -> dict[str, tuple]:
    """Run the backbone on an image ``[3, H, W]`` and return the calls of chosen operators by their names.

    A call is the operator, its input ``[1, N, C]`` and its grid.

    Raises:
        UserError: a layer that does not exist.
    """
    operators = list(find_operators(backbone).items())
    if not all(-len(operators) <= layer < len(operators) for layer in layers):
        raise UserError(f"layers={list(layers)}; {type(backbone).__name__} has {len(operators)} attentions")
    chosen = dict(operators[layer] for layer in layers)
    calls: dict[nn.Module, tuple] = {}

    def hook(module: nn.Module, inputs: tuple) -> None:
        calls[module] = (module, inputs[0].detach(), tuple(inputs[1]))

    with ExitStack() as stack, torch.no_grad():
        for operator in chosen.values():
            stack.enter_context(operator.register_forward_pre_hook(hook))
        backbone(image[None])
    return {name: calls[operator] for name, operator in chosen.items()}


def query_token(grid: Sequence[int], query: tuple[float, float]) -> int:
    """Return the index of the token at a relative position, for a video in its middle frame."""
    *time, height, width = grid
    row, column = (min(int(p * n), n - 1) for p, n in zip(query, (height, width), strict=True))
    return (prod(time) // 2 * height + row) * width + column


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

    Returns:
        None where the operator has no ``qkv`` projection with values for each token.
    """
    if not (hasattr(operator, "qkv") and hasattr(operator, "num_heads")) or isinstance(operator, TTTAttention):
        return None  # the last third of what ViT³ projects is not its values
    with torch.enable_grad():
        values, y = _values_and_output(operator, x, grid)
        if y.shape != values.shape or values.shape[1] != x.shape[1]:
            return None
        gradients = [torch.autograd.grad(y[0, token].sum(), values, retain_graph=True)[0][0] for token in tokens]
    return torch.stack(gradients).unflatten(2, (operator.num_heads, -1)).mean(3).permute(2, 0, 1)


def overlay_kernel(picture: Tensor, kernel: Tensor, query: tuple[float, float]) -> np.ndarray:
    """Draw a kernel ``[*grid]`` as a smooth overlay on the faded picture ``[3, H, W]``, RGB from 0 to 255.

    Red adds, blue subtracts, a ring marks the query (y, x). Of a video, the middle frame is drawn. The drawing is ``[h, w, 3]``,
    RGB, uint8; small pictures are enlarged.
    """
    canvas = enlarge(picture.permute(1, 2, 0).byte().numpy(), KERNEL_SIDE)
    values = kernel[kernel.shape[0] // 2] if kernel.ndim == 3 else kernel
    values = F.interpolate(values[None, None], size=canvas.shape[:2], mode="bicubic")[0, 0]
    values = (values / values.abs().max().clamp(min=1e-12)).numpy()
    faded = canvas.mean(-1, keepdims=True) * 0.5 + 115
    opacity = np.abs(values[..., None])
    drawing = faded * (1 - opacity) + np.where(values[..., None] > 0, ADDS, SUBTRACTS) * opacity
    return _mark(np.ascontiguousarray(drawing.clip(0, 255).astype(np.uint8)), query)


def draw_kernels(
    picture: Tensor,
    queries: Sequence[tuple[float, float]],
    rows: Sequence[tuple[str, dict[str, Tensor]]],
    heads: Sequence[int],
    path: Path,
) -> None:
    """Draw kernels in a grid, with a row per query and network and a column per layer and head (LiSA, Figs. 4 and 8).

    ``rows`` holds the label and the :func:`attention_kernels` of each network for ``queries``, and ``picture`` is ``[3, H, W]``,
    RGB from 0 to 255. The panels of a layer with fewer ``heads`` stay empty.
    """
    columns = 1 + max(len(kernels) for _, kernels in rows) * len(heads)
    width, height = 2.0, 2.0 * picture.shape[1] / picture.shape[2] + 0.45  # inches of a panel
    figure, axes = panels(len(queries) * len(rows), columns, width, height)
    for line, (number, (label, kernels)) in zip(axes, product(range(len(queries)), rows), strict=True):
        line[0].imshow(_mark(enlarge(picture.permute(1, 2, 0).byte().numpy(), KERNEL_SIDE), queries[number]))
        line[0].set_title(fill(label.replace("_", " "), 28), fontsize=7)
        for axis, ((name, kernel), head) in zip(line[1:], product(kernels.items(), heads), strict=False):
            if head < kernel.shape[1]:
                axis.imshow(overlay_kernel(picture, kernel[number, head], queries[number]))
                axis.set_title(f"{name}\nhead {head}, {'x'.join(map(str, kernel.shape[2:]))} tokens", fontsize=7)
    colours = LinearSegmentedColormap.from_list("kernels", np.array([SUBTRACTS, (200, 200, 200), ADDS]) / 255)
    bar = figure.colorbar(ScalarMappable(Normalize(-1, 1), colours), ax=axes, fraction=0.02, pad=0.01)
    bar.set_label("weight / largest of the panel", fontsize=7)
    bar.ax.tick_params(labelsize=7)
    save(figure, path)


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

    The matrix of focused linear attention is ``φ(Q) φ(K)ᵀ / sum + M_DWC`` (FLatten, Eq. 11). The arguments are those of
    :func:`attention_kernels`.

    Raises:
        UserError: a layer that does not exist, more tokens than :data:`MAX_TOKENS`, or no operator that has a matrix.
    """
    matrices = {}
    for name, (operator, x, grid) in record_calls(backbone, image, layers).items():
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


def draw_matrices(columns: Mapping[str, Mapping[str, Tensor]], head: int, path: Path) -> None:
    """Draw the matrices of one head with their ranks, a row per layer and a column per network (FLatten, Fig. 5).

    ``columns`` holds the :func:`attention_matrices` by the network's label.

    Raises:
        UserError: a head that does not exist.
    """
    figure, axes = panels(max(map(len, columns.values())), len(columns), 3.3, 3.6)
    for column, (label, matrices) in zip(axes.T, columns.items(), strict=True):
        for axis, (name, heads) in zip(column, matrices.items(), strict=False):
            if not 0 <= head < len(heads):
                raise UserError(f"head={head}; {name} of {label} has {len(heads)} heads")
            matrix = heads[head]
            # A few large weights would leave the others without contrast.
            low, high = matrix.float().flatten().quantile(torch.tensor([0.005, 0.995])).tolist()
            drawn = axis.imshow(matrix, cmap="viridis", vmin=min(low, 0), vmax=high, interpolation="nearest")
            figure.colorbar(drawn, ax=axis, fraction=0.045, pad=0.02).ax.tick_params(labelsize=7)
            axis.set_title(f"{fill(label, 34)}\n{name}, head {head}: rank {rank(matrix)} of {len(matrix)}", fontsize=8)
    save(figure, path)


def _mark(picture: np.ndarray, query: tuple[float, float]) -> np.ndarray:
    """Draw a ring around the query: white, with a black rim."""
    height, width = picture.shape[:2]
    centre = min(int(query[1] * width), width - 1), min(int(query[0] * height), height - 1)
    for colour, radius in (((0, 0, 0), width // 40 + 1), ((255, 255, 255), width // 40)):
        cv2.circle(picture, centre, radius, colour, 1 + width // 400, cv2.LINE_AA)
    return picture


def panels(rows: int, columns: int, width: float, height: float) -> tuple[Figure, np.ndarray]:
    """Return a figure and its ``[rows, columns]`` axes, which are off, of ``width`` by ``height`` inches each."""
    figure = Figure(figsize=(width * columns + 0.5, height * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.flat:
        axis.set_axis_off()
    return figure, axes


def save(figure, path: Path) -> None:
    """Write a figure into a folder that need not exist."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
