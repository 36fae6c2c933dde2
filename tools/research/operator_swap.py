"""Value of a host's weights for another operator: iterations to the accuracy of a training from scratch.

The host is timm's Swin with its own attention, trained on the demo classes; the network is FLatten-Swin of the same narrow
widths, whose first two stages have focused linear attention.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import cos, pi
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory

import numpy as np
import timm
import torch
import torch.nn.functional as F
from mmengine.logging import print_log
from PIL import Image
from torch import Tensor, nn

from mmlisa.conversion import PublishedWeights
from mmlisa.datasets.demo import make_imagenet_layout
from mmlisa.models.backbones import FLattenSwin

SIDE = 32
_SIZE = dict(depths=(1, 1, 2, 1), num_heads=(2, 4, 8, 16))
_WIDTH, _WINDOW, _BATCH, _RATE, _WARMUP = 32, 4, 16, 1e-3, 20
_MEAN, _STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)

Split = tuple[Tensor, Tensor]  # images [N, 3, H, W], normalised, and labels [N]


@dataclass(frozen=True)
class Swap:
    """Accuracies of the three trainings of one seed, by the number of iterations."""

    host: dict[int, float] = field(default_factory=dict)
    scratch: dict[int, float] = field(default_factory=dict)
    swapped: dict[int, float] = field(default_factory=dict)


class _Classifier(nn.Module):
    """FLatten-Swin, global average pooling, a linear layer."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        arch = dict(_SIZE, base="tiny", channels=tuple(_WIDTH * 2**i for i in range(4)), window_size=_WINDOW)
        self.backbone = FLattenSwin(arch, image_size=SIDE, out_indices=-1)
        self.head = nn.Linear(self.backbone.feature_channels[0], num_classes)

    def forward(self, image: Tensor) -> Tensor:
        return self.head(self.backbone(image)[0].mean((2, 3)))


def demo_splits(num_per_class: dict[str, int], seed: int = 0) -> tuple[Split, Split]:
    """Return training and test images of the demo classes, 32 pixels high and wide."""
    with TemporaryDirectory() as folder:
        root = make_imagenet_layout(folder, num_per_class, seed, SIDE)
        return _read(root / "train"), _read(root / "val")


def _read(folder: Path) -> Split:
    files = [(label, file) for label, kind in enumerate(sorted(folder.iterdir())) for file in sorted(kind.iterdir())]
    images = torch.from_numpy(np.stack([np.asarray(Image.open(file)) for _, file in files])).float()
    images = (images - torch.tensor(_MEAN)) / torch.tensor(_STD)
    return images.permute(0, 3, 1, 2).contiguous(), torch.tensor([label for label, _ in files])


def run_swap(train: Split, test: Split, iterations: int, every: int, seed: int) -> Swap:
    """Train the host twice the ``iterations``, the network the ``iterations`` from scratch, and a third of them from the host."""
    num_classes = int(train[1].max()) + 1
    torch.manual_seed(seed)
    size = dict(_SIZE, img_size=SIDE, window_size=_WINDOW, embed_dim=_WIDTH)
    host = timm.create_model("swin_tiny_patch4_window7_224", num_classes=num_classes, **size)
    result = Swap(host=_fit(host, train, test, 2 * iterations, every, seed))
    network = _Classifier(num_classes)
    result.scratch.update(_fit(network, train, test, iterations, every, seed))
    torch.manual_seed(seed)
    network = _Classifier(num_classes)
    with TemporaryDirectory() as folder:
        torch.save(host.state_dict(), file := f"{folder}/host.pth")
        PublishedWeights(file)(network.backbone)
    network.head.load_state_dict(host.head.fc.state_dict())
    result.swapped.update(_fit(network, train, test, iterations // 3, every, seed))
    return result


def _fit(model: nn.Module, train: Split, test: Split, iterations: int, every: int, seed: int) -> dict[int, float]:
    """Train with AdamW, 20 iterations of warm-up, a cosine schedule, and shifted and flipped images."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=_RATE, weight_decay=0.05)
    accuracies = {0: accuracy(model, test)}
    images, labels = train
    for i in range(iterations):
        optimizer.param_groups[0]["lr"] = _RATE * min((i + 1) / _WARMUP, (1 + cos(pi * i / iterations)) / 2)
        chosen = torch.randint(len(images), (_BATCH,), generator=generator)
        batch = images[chosen]
        batch = batch.flip(3) if torch.rand((), generator=generator) < 0.5 else batch
        shift = torch.randint(-3, 4, (2,), generator=generator).tolist()
        loss = F.cross_entropy(model.train()(batch.roll(shift, (2, 3))), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        if (i + 1) % every == 0 or i + 1 == iterations:
            accuracies[i + 1] = accuracy(model, test)
    print_log(f"seed {seed}, {type(model).__name__}: {accuracies}", logger="current")
    return accuracies


@torch.no_grad()
def accuracy(model: nn.Module, test: Split) -> float:
    """Return the top-1 accuracy in percent."""
    images, labels = test
    scores = torch.cat([model.eval()(batch) for batch in images.split(64)])
    return 100 * (scores.argmax(1) == labels).float().mean().item()


def to_markdown(swaps: Sequence[Swap]) -> str:
    """Return mean accuracies over the seeds, with a line of the accuracies at the end of each training."""
    columns = [
        {n: mean(getattr(swap, name)[n] for swap in swaps) for n in getattr(swaps[0], name)}
        for name in ("host", "scratch", "swapped")
    ]
    lines = [
        "| iterations | host, its own attention | from scratch | from the host |",
        "|---|---|---|---|",
        *(
            f"| {n} | " + " | ".join(f"{column[n]:.1f}" if n in column else "" for column in columns) + " |"
            for n in sorted({n for column in columns for n in column})
        ),
    ]
    _, scratch, swapped = columns
    full, third = max(scratch), max(swapped)
    lines += [
        "",
        f"From scratch {scratch[full]:.1f}% after {full} iterations; from the host {swapped[0]:.1f}% before the first one and "
        f"{swapped[third]:.1f}% after {third}.",
    ]
    return "\n".join(lines) + "\n"
