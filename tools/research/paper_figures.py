"""Figures of the papers that need no trained weights: formulas, a synthetic experiment, and accuracies over the work."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from .paper_tables import load_table

STEPS = (0, 10, 30, 100, 300, 1000, 3000, 6000)  # at which the synthetic experiment records frequencies


def draw_angular_kernel(path: Path) -> None:
    """Draw points of a plane, their feature space, and its squared distances over the angle (Castling-ViT, Fig. 3, Eq. 7)."""
    torch.manual_seed(0)
    points = torch.randn(300, 2, dtype=torch.float64)
    angle = torch.atan2(points[:, 1], points[:, 0])
    directions = nn.functional.normalize(points, dim=1)
    kernel = similarity((directions @ directions.T).clamp(-1, 1))  # Eq. 5
    values, vectors = torch.linalg.eigh(kernel)  # the three leading eigenvectors, on the unit sphere
    mapped = nn.functional.normalize((vectors * values.clamp(min=0).sqrt())[:, -3:], dim=1)
    figure = Figure(figsize=(12, 4), layout="constrained")
    style = dict(c=angle, cmap="hsv", s=12, vmin=-math.pi, vmax=math.pi)
    plane = figure.add_subplot(1, 3, 1, aspect="equal", title="(a) input space; colour: direction")
    plane.scatter(*points.T, **style)
    space = figure.add_subplot(1, 3, 2, projection="3d", title="(b) feature space, three leading dimensions")
    space.set(xlim=(-1, 1), ylim=(-1, 1), zlim=(-1, 1), box_aspect=(1, 1, 1))
    space.scatter(*mapped.T, **style)
    distance = figure.add_subplot(1, 3, 3, xlabel="angle", ylabel="squared distance", title="whole feature space")
    distance.plot((1 - kernel[0]) * math.pi, 2 * (1 - kernel[0]), ".")
    figure.savefig(path, dpi=150)


def fit_similarity() -> tuple[Tensor, Tensor, list[float], Tensor]:
    """Fit the angular similarity of unit vectors over their cosine by a network of two layers (Castling-ViT, Fig. 7).

    Returns:
        Cosines ``[n]``, the fit ``[n]``, the loss of each step, and the relative error of each frequency at each of
        :data:`STEPS`, ``[len(STEPS), 10]``; :func:`similarity` is the target.
    """
    torch.manual_seed(0)
    x = torch.linspace(-1, 1, 200)
    target = similarity(x)
    network = nn.Sequential(nn.Linear(1, 200), nn.Tanh(), nn.Linear(200, 1))
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    losses, errors = [], []
    for step in range(max(STEPS) + 1):
        fit = network(x[:, None])[:, 0]
        if step in STEPS:
            # Mirrored, because a jump between the ends would be in all frequencies; the even ones of an odd function are 0.
            spectra = [torch.fft.rfft(torch.cat([y, y.flip(0)]).detach())[1:20:2] for y in (fit, target)]
            errors.append((spectra[0] - spectra[1]).abs() / spectra[1].abs())
        loss = nn.functional.mse_loss(fit, target)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return x, fit.detach(), losses, torch.stack(errors)


def similarity(cosine: Tensor) -> Tensor:
    """Return the angular similarity of two unit vectors, over the cosine between them."""
    return 1 - cosine.arccos() / math.pi


def draw_frequencies(path: Path) -> None:
    """Draw the similarity with its linear terms and the fit, the loss, and the error of each frequency over steps (Fig. 7)."""
    x, fit, losses, errors = fit_similarity()
    figure = Figure(figsize=(13, 4), layout="constrained")
    curves, loss, trajectory = figure.subplots(1, 3)
    curves.plot(x, similarity(x), "r", label="angular similarity")
    curves.plot(x, 0.5 + x / math.pi, "g", label="linear-angular terms")
    curves.plot(x, fit, "b--", label="network of two layers")
    curves.set(xlabel="cosine", ylabel="similarity")
    curves.legend()
    loss.semilogy(losses)
    loss.set(xlabel="step", ylabel="squared error")
    image = trajectory.imshow(errors.T, cmap="coolwarm", vmin=0, vmax=1, origin="lower", aspect="auto")
    trajectory.set(xlabel="step", ylabel="frequency")
    trajectory.set_xticks(range(len(STEPS)), STEPS)
    trajectory.set_yticks(range(10), range(1, 20, 2))
    figure.colorbar(image, ax=trajectory, label="relative error")
    figure.savefig(path, dpi=150)


def focus(x: Tensor, power: int = 3) -> Tensor:
    """Return FLatten's f_p of vectors ``[..., d]``: the direction of ``x**p`` with the length of ``x``."""
    return nn.functional.normalize(x**power, dim=-1) * x.norm(dim=-1, keepdim=True)


def draw_focusing(path: Path) -> None:
    """Draw vectors before and after f_3, and the scores of a query (FLatten, Fig. 4)."""
    # Solved for the eight scores of the figure, which gives no vectors.
    query = torch.tensor([2.5144, 1.0063])
    keys = torch.tensor([[1.3361, 1.0571], [0.5144, 0.9719], [0.5814, 1.6361], [0.2918, 1.4094]])
    figure = Figure(figsize=(9, 4), layout="constrained")
    plane, bars = figure.subplots(1, 2)
    angles = torch.linspace(0.06, 0.47, 8) * math.pi
    for start in torch.stack([angles.cos(), angles.sin()], dim=1):
        end = focus(start)
        plane.annotate("", end.tolist(), start.tolist(), arrowprops=dict(arrowstyle="->", color="tab:red"))
        plane.plot([0, start[0]], [0, start[1]], "tab:blue")
    plane.set(aspect="equal", xlim=(0, 1.1), ylim=(0, 1.1), title="(a) f_3 turns vectors to the nearest axis")
    for shift, label, map_vectors in ((-0.2, "vanilla", torch.clone), (0.2, "after f_3", focus)):
        products = map_vectors(keys) @ map_vectors(query)
        bars.bar_label(bars.bar(np.arange(4) + shift, products / products.sum(), 0.4, label=label), fmt="%.2f")
    bars.set(xlabel="key", title="(b) attention scores")
    bars.legend()
    figure.savefig(path, dpi=150)


def read_series(paper: dict[str, Any], plot: dict[str, Any]) -> dict[str, list[tuple[float, float]]]:
    """Return the printed work and accuracy of each series of a plot: its own ``printed`` points, and rows of its ``table``.

    A row belongs to the series in ``ours`` with which its label begins. Its accuracy is that of ``trained``, or of its config.
    """
    series = {name: sorted(map(tuple, points)) for name, points in plot["printed"].items()}
    rows = [row for table in paper["tables"] if table["name"] == plot["table"] for row in table["rows"]]
    for name in plot["ours"]:
        points = set()
        for row in rows:
            accuracy = paper["accuracies"].get(row.get("trained", row["config"]), {})
            if row["label"].startswith(name) and plot["metric"] in accuracy:
                macs = row["macs"]["paper"] if isinstance(row["macs"], dict) else row["macs"]
                points.add((float(macs.split()[0]), accuracy[plot["metric"]]))
        series[name] = sorted(points)
    return series


def draw_accuracies(name: str, path: Path) -> None:
    """Draw the plots of accuracy over multiply-accumulates of a paper, from its tables."""
    paper = load_table(name)
    figure = Figure(figsize=(6 * len(paper["plots"]), 5), layout="constrained")
    for axis, plot in zip(figure.subplots(1, len(paper["plots"]), squeeze=False)[0], paper["plots"], strict=True):
        for label, points in read_series(paper, plot).items():
            axis.plot(*zip(*points, strict=True), "o-" if label in plot["ours"] else "s--", label=label.rstrip("-"))
        axis.set(xlabel="MACs (G), as printed", ylabel=f"{plot['metric']}, as printed", title=plot["name"])
        axis.semilogx()
        axis.legend(fontsize=7)
    figure.savefig(path, dpi=150)


FIGURES: dict[str, dict[str, Callable[[Path], None]]] = {
    "castling": {
        "accuracy_over_macs": lambda path: draw_accuracies("castling", path),
        "angular_kernel": draw_angular_kernel,
        "frequencies": draw_frequencies,
    },
    "flatten": {"accuracy_over_flops": lambda path: draw_accuracies("flatten", path), "focusing": draw_focusing},
}
