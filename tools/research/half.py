"""Prints the largest relative error of a map in half precision of each backbone, for docs/anywhere.md.

``python tools/research/half.py``: new weights, and an image of 96x128 pixels of noise. The error is against fp32's map. In the
last column it is that of an fp32 network with weights and an image rounded to bfloat16.
"""

import argparse
from collections.abc import Sequence
from copy import deepcopy

import torch
from torch import Tensor, nn

from mmlisa.models import backbones


@torch.no_grad()
def errors(kind: str, arch: str) -> list[float]:
    """Return the errors in float16, bfloat16, autocast in bfloat16, and with rounded weights."""
    torch.manual_seed(0)
    model, image = getattr(backbones, kind)(arch).eval(), torch.randn(1, 3, 96, 128)
    expected = model(image)

    def error(network: nn.Module, x: Tensor) -> float:
        return max(float((a.float() - b).norm() / b.norm()) for a, b in zip(network(x), expected, strict=True))

    found = [error(deepcopy(model).to(dtype), image.to(dtype)) for dtype in (torch.float16, torch.bfloat16)]
    with torch.autocast("cpu", torch.bfloat16):
        found.append(error(model, image))
    return [*found, error(model.bfloat16().float(), image.bfloat16().float())]


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    return argparse.ArgumentParser(description=__doc__).parse_args(argv)


def main() -> None:
    print("| network | float16 | bfloat16 | autocast in bfloat16 | rounded weights alone |\n|---|---|---|---|---|")
    for kind in backbones.__all__:
        smallest = next(iter(getattr(backbones, kind).arch_settings))
        for arch in ["small", "hybrid-small"] if kind == "LiSANet" else [smallest]:
            print(f"| {kind} {arch} | {' | '.join(f'{e:.3f}' for e in errors(kind, arch))} |", flush=True)


if __name__ == "__main__":
    parse_args()
    main()
