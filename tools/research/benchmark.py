"""Time and memory of operators, backbones and detectors, measured side by side.

Every suite times its candidates in turns within one process, so that a drift of the machine affects all of them alike. It returns
rows of plain data, ``dict(case=…, name=…, seconds=…, low=…, high=…, …)``, in which low and high are the quartiles.
"""

import platform
import re
import subprocess
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import ceil, prod
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import yaml
from mmengine.config import Config
from torch import Tensor, nn
from tqdm import tqdm

from mmlisa import config_path, ops
from mmlisa.inference.faster import optimize_for_cpu
from mmlisa.models.attention import build_attention
from mmlisa.models.layers.blocks import Block
from mmlisa.registry import MODELS as MMLISA_MODELS

from .measured import BASELINE

Row = dict[str, Any]
Candidates = dict[str, Callable[[], Any]]

_DATA = yaml.safe_load(Path(__file__).with_suffix(".yml").read_text(encoding="utf-8"))
# Type and options of each backbone, and the channels of its maps.
BACKBONES: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    name: (entry["backbone"], tuple(entry["channels"])) for name, entry in _DATA["backbones"].items()
}
SUITES = _DATA["suites"]


def time_in_turns(candidates: Candidates, rounds: int, device: str = "cpu", sample: float = 0.05) -> dict[str, Row]:
    """Time the candidates one after another, ``rounds`` times over.

    Args:
        candidates: functions by name.
        rounds: samples of each.
        device: ``'cpu'`` or ``'cuda'``.
        sample: shortest duration of a sample in seconds; faster candidates are called several times in it.

    Returns:
        Median and quartiles in seconds per call, by name.
    """
    calls = {}
    for name, function in candidates.items():
        for _ in range(3 if device == "cuda" else 1):
            function()  # warm-up: plans, caches, memory, compilation
        calls[name] = max(1, ceil(sample / max(time_calls(function, device), 1e-6)))
    samples: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in tqdm(range(rounds), "rounds", leave=False, disable=None):
        for name, function in candidates.items():
            samples[name].append(time_calls(function, device, calls[name]))
    quartiles = {name: np.quantile(times, (0.25, 0.5, 0.75)).tolist() for name, times in samples.items()}
    return {name: dict(seconds=median, low=low, high=high) for name, (low, median, high) in quartiles.items()}


def saved_bytes(function: Callable[[], Any], model: nn.Module) -> int:
    """Return the bytes that autograd saves in a call for the backward pass, without parameters and buffers of ``model``.

    Every storage counts once and whole. The number is the same on every device. Tensors inside checkpointed parts do not count.
    """
    own = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers())}
    kept: dict[int, Tensor] = {}  # the tensors, so that no other tensor gets their addresses

    def pack(tensor: Tensor) -> Tensor:
        kept.setdefault(tensor.untyped_storage().data_ptr(), tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        _result = function()  # its graph holds the tensors
    return sum(tensor.untyped_storage().nbytes() for address, tensor in kept.items() if address not in own)


def peak_extra_bytes(function: Callable[[], Any], device: str = "cpu") -> int:
    """Return the most bytes that PyTorch holds during a call beyond those held before it; outputs count.

    The function is called twice. The first call warms up, the second is measured.
    """
    function()
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        function()
        return torch.cuda.max_memory_allocated() - before
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        function()
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    changes = [e.nbytes() for e in sorted(events, key=lambda e: e.start_ns())]
    return int(np.cumsum(changes).max(initial=0))


def time_calls(function: Callable[[], Any], device: str, calls: int = 1) -> float:
    """Return the seconds per call."""
    if device == "cuda":  # between two events in the stream that does the work
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        for _ in range(calls):
            function()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3 / calls
    begin = perf_counter()
    for _ in range(calls):
        function()
    return (perf_counter() - begin) / calls


# ---- operators


def pseudo_code(query: Tensor, key: Tensor, value: Tensor, kernel_a: Tensor, kernel_b: Tensor, bias: Tensor) -> Tensor:
    """LiSA with heads as in Fig. 7 of the journal paper, the baseline of the fast paths.

    Args:
        query, key, value: ``[B, *grid, h, c]``, tokens before channels as in the paper.
        kernel_a: ``[*grid, c, D]``.
        kernel_b: ``[*grid, D]``.
        bias: ``[c, D]``.

    Returns:
        ``[B, *grid, h, c]``.
    """
    grid = kernel_b.shape[:-1]
    axes, kernel_axes = tuple(range(1, len(grid) + 1)), tuple(range(len(grid)))

    def convolve(tokens: Tensor, kernel: Tensor, equation: str) -> Tensor:
        spectrum = torch.einsum(equation, torch.fft.rfftn(tokens, dim=axes), torch.fft.rfftn(kernel, dim=kernel_axes))
        return torch.fft.irfftn(spectrum, s=grid, dim=axes)

    ga = convolve(key, kernel_a, "b...hc,...cd->b...hcd")
    gb = convolve(value, kernel_b, "b...hv,...d->b...hvd") + bias
    return torch.einsum("b...hc,b...hcd,b...hvd->b...hv", query, ga, gb)


def lisa_inputs(batch: int, channels: int, patterns: int, grid: Sequence[int], device: str = "cpu") -> list[Tensor]:
    """Return random ``query, key, value, kernel_a, kernel_b, bias`` of :func:`mmlisa.ops.lisa`, with heads of 16 channels."""
    c = 16
    query, key, value = (torch.randn(batch, channels // c, c, *grid, device=device) for _ in range(3))
    scale = prod(grid) ** -0.5
    kernel_a, kernel_b = (torch.randn(*lead, *grid, device=device) * scale for lead in ((c, patterns), (patterns,)))
    query, key = F.normalize(query, dim=2), F.normalize(key, dim=2)
    return [query, key, value, kernel_a, kernel_b, torch.randn(c, patterns, device=device)]


def operator_candidates(
    batch: int, channels: int, patterns: int, grid: Sequence[int], device: str
) -> tuple[Candidates, Candidates]:
    """Return the candidates at one shape by name: forward passes, and forward with backward passes.

    The forward pass of LiSA is that of evaluation, which caches the spectra of the kernels; training does not cache them.
    """
    grid = tuple(grid)
    query, key, value, *kernels = lisa_inputs(batch, channels, patterns, grid, device)
    kernel_a, kernel_b, bias = kernels
    last = [x.permute(0, *range(3, x.ndim), 1, 2).contiguous() for x in (query, key, value)]
    last += [kernel_a.movedim((0, 1), (-2, -1)).contiguous(), kernel_b.movedim(0, -1).contiguous(), bias]
    prepared = ops.LiSAKernels.prepare(*kernels)
    depthwise = torch.randn(channels, 1, *(7,) * len(grid), device=device)
    attention = [x.flatten(3).mT.contiguous() for x in (query, key, value)]
    heads, c = channels // 16, 16
    agents = torch.randn(batch, heads, 49, c, device=device)
    powers = [torch.randn(heads, c, device=device) for _ in range(2)]
    weights = [torch.randn(heads, c, c, device=device) / c for _ in range(2)]

    inputs: dict[str, tuple[Callable[..., Tensor], list[Tensor]]] = {
        "LiSA": (ops.lisa, [query, key, value, *kernels]),
        "pseudo-code": (pseudo_code, last),
        "reference": (partial(ops.lisa, backend="reference"), [query, key, value, *kernels]),
        "softmax (SDPA)": (F.scaled_dot_product_attention, attention),
        "depthwise 7x7": (partial(F.conv2d, padding=3, groups=channels), [value.flatten(1, 2), depthwise]),
        "MILA": (partial(ops.mila, grid=grid), attention),
        "TTT (gated unit)": (ops.ttt_glu, [*attention, *weights]),
        "polarity-aware": (ops.polarity_aware, [*attention, *powers]),
        "RALA": (partial(ops.rala, grid=grid), attention),
        "MALA": (partial(ops.mala, grid=grid), attention),
        "InLine": (ops.inline, attention),
        "agent (49)": (ops.agent, [*attention, agents]),
    }
    if prod(grid) > 256:  # the reference takes too long
        del inputs["reference"]

    def train(function, tensors):
        leaves = [x.clone().requires_grad_() for x in tensors]
        gradient = torch.randn_like(function(*tensors))
        return lambda: torch.autograd.grad(function(*leaves), leaves, gradient)

    evaluated = inputs | {"LiSA": (prepared, [query, key, value])}
    forwards = {name: torch.no_grad()(partial(function, *x)) for name, (function, x) in evaluated.items()}
    return forwards, {name: train(*entry) for name, entry in inputs.items()}


def _measure(case: str, candidates: Candidates, rounds: int, device: str, **columns: Any) -> dict[str, Row]:
    """Return time and peak memory of each candidate by its name, as rows with the given ``columns``."""
    return {
        name: dict(case=case, name=name, **columns, **time, peak_bytes=peak_extra_bytes(candidates[name], device))
        for name, time in time_in_turns(candidates, rounds, device).items()
    }


def benchmark_operators(rounds: int, device: str, shapes: Iterable[Sequence[Any]]) -> list[Row]:
    """Measure time and peak memory of the forward pass, and of both passes."""
    rows, modes = [], ("forward", "forward + backward")
    for case, *shape in shapes:
        for mode, candidates in zip(modes, operator_candidates(*shape, device), strict=True):
            rows += _measure(case, candidates, rounds, device, mode=mode).values()
    return rows


def benchmark_scaling(
    rounds: int, device: str, grids: Iterable[Any], build: Callable[[Any], Candidates] | None = None
) -> list[Row]:
    """Measure the forward pass of a layer of 64 channels and 8 patterns, or of what ``build`` returns, over the tokens."""
    build = build or (lambda grid: operator_candidates(1, 64, 8, grid, device)[0])
    rows = []
    for grid in grids:
        candidates = build(grid)
        candidates.pop("reference", None)
        rows += _measure("x".join(map(str, grid)), candidates, rounds, device, tokens=prod(grid)).values()
    return rows


def build_block(options: Row, grid: list[int], channels: int, num_heads: int, grids: list[list[int]]) -> nn.Module:
    """Build a block with an attention; an option that is a list has a value per grid."""
    cfg = {key: v[grids.index(grid)] if isinstance(v, list) else v for key, v in options.items()}
    return Block(channels, build_attention(cfg, channels, num_heads, grid), mlp_ratio=4)


def benchmark_blocks(
    rounds: int, device: str, channels: int, num_heads: int, grids: list[list[int]], attention: dict[str, Row]
) -> list[Row]:
    """Measure the forward pass of a block with each attention; an option that is a list has a value per grid."""

    def build(grid: list[int]) -> Candidates:
        x, blocks = torch.randn(1, prod(grid), channels, device=device), {}
        for name, options in attention.items():
            block = build_block(options, grid, channels, num_heads, grids).to(device).eval()
            blocks[name] = torch.inference_mode()(partial(block, x, grid))
        return blocks

    return benchmark_scaling(rounds, device, grids, build)


# ---- networks


def build_backbone(cfg: dict[str, Any], *, training: bool = False) -> nn.Module:
    """Build a backbone from a ``type='scope.Name'``, in training mode or optimised for inference."""
    model = MMLISA_MODELS.build(cfg)
    model.train(training)  # returns nothing for mmdet's Swin
    return model if training else optimize_for_cpu(model)


def build_detector(backbone: dict[str, Any], channels: Sequence[int], *, training: bool = False) -> nn.Module:
    """Build mmdet's Mask R-CNN with FPN, in training mode or optimised for inference."""
    cfg = Config.fromfile(config_path("_base_/models/mask_rcnn.py")).model
    cfg.backbone.update(backbone)
    cfg.neck.in_channels = list(channels)
    cfg._scope_ = "mmdet"
    model = MMLISA_MODELS.build(cfg).train(training)
    return model if training else optimize_for_cpu(model)


@torch.inference_mode()
def predict(model: nn.Module, image: Tensor) -> Any:
    """Predict with a detector on an image ``[1, 3, H, W]``."""
    from mmdet.structures import DetDataSample

    shapes = dict.fromkeys(("img_shape", "ori_shape", "pad_shape", "batch_input_shape"), tuple(image.shape[-2:]))
    return model(image, [DetDataSample(metainfo=dict(shapes, scale_factor=(1.0, 1.0)))], mode="predict")


def computes_bf16() -> bool:
    """Whether the processor multiplies bfloat16; others convert, and gain nothing."""
    file = Path("/proc/cpuinfo")
    return file.exists() and not {"avx512_bf16", "amx_bf16"}.isdisjoint(file.read_text().split())


def train_step(model: nn.Module, images: Tensor) -> None:
    """Run a forward and a backward pass of a backbone."""
    _loss(model, images).backward()
    model.zero_grad(set_to_none=True)


def _loss(model: nn.Module, images: Tensor) -> Tensor:
    return sum(one.mean() for one in model(images))


# The function that builds a network from a backbone and its channels, and the function to time
_KINDS: dict[str, tuple[Callable[..., nn.Module], Callable[[nn.Module, Tensor], Any]]] = {
    "inference": (lambda cfg, _: build_backbone(cfg), torch.inference_mode()(nn.Module.__call__)),
    "detectors": (build_detector, predict),
    "training": (lambda cfg, _: build_backbone(cfg, training=True), train_step),
}


def benchmark_networks(
    rounds: int,
    device: str,
    sizes: Iterable[tuple[int, int]],
    names: Iterable[str] = (),
    networks: dict[str, Row] | None = None,
    kind: str = "inference",
) -> list[Row]:
    """Measure the backbones ``names``, or other ``networks`` by name.

    The kind is ``'inference'``, ``'detectors'`` (prediction of a Mask R-CNN with random weights) or ``'training'`` (a forward and
    backward pass, and the tensors saved between them). If the CPU computes in bfloat16, inference is also timed under autocast.
    """
    build, run = _KINDS[kind]
    entries = {name: (cfg, ()) for name, cfg in networks.items()} if networks else {n: BACKBONES[n] for n in names}
    models = {name: build(*entry).to(device) for name, entry in entries.items()}
    rows = []
    for height, width in sizes:
        image = torch.randn(1, 3, height, width, device=device)
        candidates = {name: partial(run, model, image) for name, model in models.items()}
        halves = {}
        if kind == "inference" and device == "cpu" and computes_bf16():
            halves = {f"{name} bf16": torch.autocast(device, torch.bfloat16)(call) for name, call in candidates.items()}
        measured = _measure(f"{height}x{width}", candidates | halves, rounds, device)
        for name, half in zip(models, [measured.pop(name) for name in halves], strict=False):
            measured[name]["bf16_seconds"] = half["seconds"]
        if kind == "training":
            for name, row in measured.items():
                row["saved_bytes"] = saved_bytes(partial(_loss, models[name], image), models[name])
        rows += measured.values()
    return rows


def benchmark_onnxruntime(rounds: int, sizes: Iterable[tuple[int, int]], names: Sequence[str]) -> list[Row]:
    """Measure the backbones' exported files in onnxruntime on the CPU, with as many threads as PyTorch has."""
    import onnxruntime

    from mmlisa.export.whole import Exportable
    from mmlisa.export.writing import write

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, torch.get_num_threads()
    rows = []
    for height, width in sizes:
        image, candidates = torch.randn(1, 3, height, width), {}
        for name in names:
            model = MMLISA_MODELS.build(BACKBONES[name][0])
            with TemporaryDirectory() as folder:
                file = Path(folder, "model.onnx")
                # Random weights amplify rounding: CPUBone-B2 differs by 0.0101 at 800x1344.
                write(Exportable(model), file, (height, width), tolerance=0.05)
                session = onnxruntime.InferenceSession(file, options, ["CPUExecutionProvider"])
            candidates[name] = partial(session.run, None, {session.get_inputs()[0].name: image.numpy()})
        times = time_in_turns(candidates, rounds)
        rows += [dict(case=f"{height}x{width}", name=name, **times[name]) for name in names]
    return rows


# ---- reports

_COLUMNS: dict[str, tuple[str, Callable[[Row], str]]] = {
    "mode": ("pass", lambda r: r["mode"]),
    "seconds": ("median ms (quartiles)", lambda r: f"{_ms(r['seconds'])} ({_ms(r['low'])}-{_ms(r['high'])})"),
    "peak_bytes": ("peak extra MB", lambda r: f"{r['peak_bytes'] / 1e6:.1f}"),
    "speedup": ("speed / pseudo-code", lambda r: f"{r['speedup']:.2f}"),
    "memory_ratio": ("memory / pseudo-code", lambda r: f"{r['memory_ratio']:.2f}"),
    "ns_per_pixel": ("ns/pixel", lambda r: f"{r['ns_per_pixel']:.0f}"),
    "ratio": (f"time / {BASELINE}", lambda r: f"{r['ratio']:.2f}"),
    "bf16_seconds": ("bf16 ms", lambda r: _ms(r["bf16_seconds"])),
    "bf16_ratio": ("bf16 / fp32", lambda r: f"{r['bf16_ratio']:.2f}"),
    "saved_bytes": ("saved MB", lambda r: f"{r['saved_bytes'] / 1e6:.1f}"),
    "saved_ratio": (f"saved / {BASELINE}", lambda r: f"{r['saved_ratio']:.2f}"),
}


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g}" if seconds < 1 else f"{seconds * 1e3:.0f}"


def _cell(row: Row, key: str) -> str:
    if key in _COLUMNS or key not in row:
        return _COLUMNS[key][1](row) if key in row else ""
    return f"{row[key]:.3g}" if isinstance(row[key], float) else str(row[key]).replace("|", "/")


def to_markdown(title: str, rows: list[Row]) -> str:
    """Return a table of all columns that occur in the rows, and the geometric means of LiSA's speed-ups by pass."""
    found = dict.fromkeys(key for row in rows for key in row)
    shown = ["case", "name", *(key for key in _COLUMNS if key in found)]
    shown += [key for key in found if key not in (*shown, "low", "high", "best", "tokens", "table")]
    lines = [f"## {title}", "", f"| {' | '.join(_COLUMNS[key][0] if key in _COLUMNS else key for key in shown)} |"]
    lines.append("|---" * len(shown) + "|")
    lines += [f"| {' | '.join(_cell(row, key) for key in shown)} |" for row in rows]
    for mode in dict.fromkeys(row["mode"] for row in rows if "speedup" in row):
        speedups = [row["speedup"] for row in rows if row["mode"] == mode and row["name"] == "LiSA"]
        mean, least = np.exp(np.log(speedups).mean()), min(speedups)
        lines += ["", f"Speed of LiSA over the pseudo-code, {mode}: geometric mean {mean:.2f}, least {least:.2f}."]
    return "\n".join(lines) + "\n"


def describe_processor() -> str:
    """Return the name of the processor, as far as the system tells it, and the number of PyTorch's threads."""
    file = Path("/proc/cpuinfo")
    names = re.findall(r"^model name\s*: (.+)$", file.read_text(), re.MULTILINE) if file.exists() else []
    return f"{names[0] if names else platform.machine()}, {torch.get_num_threads()} threads"


def describe_commit() -> str:
    """Return the commit of the clone, with ``-dirty`` if files differ from it; ``unknown`` without Git."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--exclude=*"]
    found = subprocess.run(command, capture_output=True, text=True) if which("git") else None
    return found.stdout.strip() if found and found.returncode == 0 else "unknown"
