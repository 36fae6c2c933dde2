"""What a machine with a GPU can show of this package in ten minutes: finiteness, crossing points, thresholds, speed, memory.

Each section yields rows of plain data. :func:`prove` runs the sections until the time is over, so that a slow machine gives a
shorter page, which says what is missing.
"""

from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from functools import partial
from time import monotonic
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from tqdm import tqdm

from mmlisa.memory import peak_extra_bytes

from . import benchmark
from .benchmark import BACKBONES, BASELINE, Row


class Scope(NamedTuple):
    """What is measured; image sizes are (height, width) in pixels, grids are in tokens."""

    names: tuple[str, ...] = tuple(BACKBONES)
    finite_size: tuple[int, int] = (800, 1344)
    sizes: tuple[tuple[int, int], ...] = benchmark.TRAINING_SIZES
    grids: tuple[tuple[int, int], ...] = benchmark.SCALING_GRIDS
    tuning: tuple[tuple, ...] = benchmark.TUNING_SHAPES
    rounds: int = 5


# Shows on a CPU that every section runs; its figures say nothing about a GPU.
DRY_RUN = Scope(
    names=("HyLiSANet-S", BASELINE),
    finite_size=(64, 96),
    sizes=((64, 64),),
    grids=((7, 7), (14, 14)),
    tuning=((16, 8, (4, 4)), (16, 8, (14, 14))),
    rounds=1,
)


def finiteness(scope: Scope, device: str) -> Iterator[Row]:
    """Maps in fp16 and bf16, under autocast and of a converted network, against the same weights in fp32.

    ``error`` is the largest difference of a map over its largest entry.
    """
    image = torch.randn(1, 3, *scope.finite_size, device=device)
    for name in scope.names:
        model = benchmark.build_backbone(BACKBONES[name][0]).to(device)
        exact = _maps(model, image)
        for dtype in (torch.float16, torch.bfloat16):
            for mode in ("autocast", "converted"):
                row = dict(case="x".join(map(str, scope.finite_size)), name=name, mode=f"{mode}, {str(dtype)[6:]}")
                try:
                    if mode == "autocast":
                        with torch.autocast(device, dtype):
                            maps = _maps(model, image)
                    else:
                        maps = _maps(deepcopy(model).to(dtype), image.to(dtype))
                except RuntimeError as error:  # the device lacks a kernel
                    yield {**row, "failure": str(error).splitlines()[0]}
                    continue
                finite = all(bool(one.isfinite().all()) for one in maps)
                errors = [float((y - x).abs().max() / x.abs().max()) for x, y in zip(exact, maps, strict=True)]
                yield {**row, "finite": finite, "error": max(errors)}


def _maps(model: nn.Module, image: Tensor) -> list[Tensor]:
    with torch.inference_mode():
        return [one.float() for one in model(image)]


def crossings(scope: Scope, device: str) -> Iterator[Row]:
    """Time of each operator over that of softmax attention (SDPA), by grid, forward and with the backward pass."""
    rival = "softmax (SDPA)"
    for grid in scope.grids:
        modes = ("forward", "forward + backward")
        for mode, candidates in zip(modes, benchmark.operator_candidates(1, 64, 8, grid, device), strict=True):
            candidates.pop("reference", None)
            times = benchmark.time_in_turns(candidates, scope.rounds, device, sample=0.01)
            for name, time in times.items():
                row = dict(case="x".join(map(str, grid)), mode=mode, name=name, **time)
                yield row | ({"over_softmax": time["seconds"] / times[rival]["seconds"]} if rival in times else {})


def thresholds(scope: Scope, device: str) -> Iterator[Row]:
    """Time of each of LiSA's backends on both sides; :func:`benchmark.tune` makes the dispatch table's thresholds of the rows."""
    for row in benchmark.measure_backends(scope.rounds, device, scope.tuning):
        yield {**row, "mode": row["side"]}


def inference(scope: Scope, device: str) -> Iterator[Row]:
    """One image through each backbone: eager, compiled, and as a CUDA graph where there is a GPU."""
    for size in scope.sizes:
        image = torch.randn(1, 3, *size, device=device)
        for name in scope.names:
            model = benchmark.build_backbone(BACKBONES[name][0]).to(device)
            torch.compiler.reset()
            ways: dict[str, Callable[[], Callable[[], Any]]] = {
                "eager": lambda model=model, image=image: partial(model, image),
                "compiled": lambda model=model, image=image: partial(torch.compile(model, dynamic=False), image),
            }
            if device == "cuda":
                ways["CUDA graph"] = lambda model=model, image=image: _graph(model, image)
            yield from _each_way(
                ways, dict(case="x".join(map(str, size)), name=name), scope, device, torch.inference_mode
            )


def _graph(model: nn.Module, image: Tensor) -> Callable[[], Any]:
    """Record a forward pass; PyTorch asks for warm-up passes on another stream."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            model(image)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        model(image)
    return graph.replay


def training(scope: Scope, device: str) -> Iterator[Row]:
    """A forward and a backward pass of each backbone, in fp32 and under autocast, eager and compiled."""
    for size in scope.sizes:
        image = torch.randn(1, 3, *size, device=device)
        for name in scope.names:
            model = benchmark.build_backbone(BACKBONES[name][0], training=True).to(device)
            for amp in (False, True):
                torch.compiler.reset()
                ways = {
                    "eager": lambda model=model, image=image, amp=amp: partial(_step, model, model, image, device, amp),
                    "compiled": lambda model=model, image=image, amp=amp: partial(
                        _step, torch.compile(model, dynamic=False), model, image, device, amp
                    ),
                }
                case = f"{'x'.join(map(str, size))}{', AMP' * amp}"
                yield from _each_way(ways, dict(case=case, name=name), scope, device, torch.enable_grad)


def _step(called: Callable, model: nn.Module, image: Tensor, device: str, amp: bool) -> None:
    with torch.autocast(device, enabled=amp):
        maps = called(image)
    sum(one.float().mean() for one in maps).backward()
    model.zero_grad(set_to_none=True)


def _each_way(ways: dict[str, Callable], row: Row, scope: Scope, device: str, mode: Callable) -> Iterator[Row]:
    with mode():
        for way, prepare in ways.items():
            try:
                function = prepare()
                time = benchmark.time_in_turns({way: function}, scope.rounds, device)[way]
                memory = peak_extra_bytes(function, device)
            except Exception as error:  # compilers and graph recorders raise anything
                yield {**row, "mode": way, "failure": f"{type(error).__name__}: {error}".splitlines()[0]}
                continue
            yield {**row, "mode": way, **time, "peak_bytes": memory}


SECTIONS: dict[str, Callable[[Scope, str], Iterable[Row]]] = {
    "finiteness": finiteness,
    "thresholds": thresholds,
    "crossings": crossings,
    "inference": inference,
    "training": training,
}


def prove(scope: Scope, device: str, minutes: float = 10) -> tuple[dict[str, list[Row]], list[str]]:
    """Run the sections, each for at most its share of the time that is left.

    Returns:
        The rows by section, and the names of the sections that the time cut short.
    """
    end = monotonic() + 60 * minutes
    found: dict[str, list[Row]] = {}
    cut = []
    for position, (name, section) in enumerate(SECTIONS.items()):
        stop = monotonic() + (end - monotonic()) / (len(SECTIONS) - position)
        found[name] = []
        for row in tqdm(section(scope, device), name, leave=False, disable=None):
            found[name].append(row)
            if monotonic() > stop:
                cut.append(name)
                break
    return found, cut
