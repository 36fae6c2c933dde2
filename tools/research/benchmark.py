"""Time and memory of operators, backbones and detectors, measured side by side.

Every suite times its candidates in turns within one process, so that a drift of the machine affects all of them alike. It returns
rows of plain data, ``dict(case=…, name=…, seconds=…, low=…, high=…, …)``, in which low and high are the quartiles.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import ceil, log, log2, prod
from time import perf_counter
from typing import Any

import numpy as np
import timm
import torch
import torch.nn.functional as F
from mmengine.config import Config
from torch import Tensor, nn
from tqdm import tqdm

from mmlisa import ops
from mmlisa.deploy.cpu import optimize_for_cpu
from mmlisa.memory import peak_extra_bytes
from mmlisa.ops.lisa import dispatch
from mmlisa.registry import MODELS as MMLISA_MODELS

Row = dict[str, Any]

# Operators: (name, batch, channels, patterns, grid); heads are 16 channels wide. The stages of LiSANet-S at 224 px, LiSANet-I,
# and a detector's third stage.
SHAPES = (
    ("7x7x384", 4, 384, 8, (7, 7)),
    ("14x14x320", 4, 320, 8, (14, 14)),
    ("14x14x192, D=16", 4, 192, 16, (14, 14)),
    ("28x28x128", 4, 128, 8, (28, 28)),
    ("56x56x64", 4, 64, 8, (56, 56)),
    ("50x84x320", 1, 320, 8, (50, 84)),
)
SCALING_GRIDS = ((7, 7), (14, 14), (28, 28), (56, 56), (112, 112), (200, 336))
# The largest grid, in tokens, on which a form is measured, where it takes too long on the others.
MAX_TOKENS = {"reference": 256}

# Backbones: type and options, by the registry of their scope, and the channels of their four maps.
BACKBONES: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "HyLiSANet-S": (dict(type="mmlisa.LiSANet", arch="hybrid-small"), (64, 128, 320, 384)),
    "LiSANet-S": (dict(type="mmlisa.LiSANet", arch="small"), (64, 128, 320, 384)),
    "FLatten-Swin-T": (dict(type="mmlisa.FLattenSwin", arch="tiny"), (96, 192, 384, 768)),
    "iViT-T": (dict(type="mmlisa.iViT", arch="tiny"), (64, 128, 320, 512)),
    "MILA-T": (dict(type="mmlisa.MILA", arch="tiny"), (64, 128, 256, 512)),
    "H-ViT3-T": (dict(type="mmlisa.HViT3", arch="tiny"), (64, 128, 320, 512)),
    "Pola-Swin-T": (dict(type="mmlisa.FLattenSwin", arch="pola-tiny"), (96, 192, 384, 768)),
    "Swin-T": (dict(type="mmdet.SwinTransformer"), (96, 192, 384, 768)),
    "ConvNeXt-T": (
        dict(type="mmpretrain.ConvNeXt", arch="tiny", out_indices=(0, 1, 2, 3), gap_before_final_norm=False),
        (96, 192, 384, 768),
    ),
    "CAFormer-S18": (dict(type="timm.caformer_s18", features_only=True), (64, 128, 320, 512)),
    "ResNet-50": (dict(type="mmdet.ResNet", depth=50), (256, 512, 1024, 2048)),
    "PVTv2-B2": (
        dict(type="mmdet.PyramidVisionTransformerV2", embed_dims=64, num_layers=[3, 4, 6, 3]),
        (64, 128, 320, 512),
    ),
}
BASELINE = "Swin-T"
IMAGE_SIZES = ((224, 224), (512, 2048), (800, 1344))
TRAINING_SIZES = ((224, 224), (512, 512), (800, 1344))
SQUARES = ((224, 224), (448, 448), (896, 896), (1792, 1792))


@dataclass(frozen=True)
class Machine:
    """Peak speeds of this machine in single precision, the roof of the roofline model."""

    device: str
    threads: int
    torch_version: str
    flops: float  # per second, of a matrix product
    bandwidth: float  # bytes per second, read and written, of a copy beyond the caches

    def roofline(self, flops: float, num_bytes: float, seconds: float) -> float:
        """Return the fraction of the attainable speed; 1 if only arithmetic or memory traffic takes time."""
        return max(flops / self.flops, num_bytes / self.bandwidth) / seconds


def measure_machine(device: str = "cpu") -> Machine:
    """Measure the peaks of a matrix product and of a copy, the best of ten."""
    size = 2048 if device == "cpu" else 8192
    a, b = torch.randn(size, size, device=device), torch.randn(size, size, device=device)
    source = torch.randn(1 << 26, device=device)
    target = torch.empty_like(source)
    product = min(_time(lambda: torch.mm(a, b), device) for _ in range(10))
    copy = min(_time(lambda: target.copy_(source), device) for _ in range(10))
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    return Machine(name, torch.get_num_threads(), torch.__version__, 2 * size**3 / product, 2 * source.nbytes / copy)


def time_in_turns(
    candidates: dict[str, Callable[[], Any]], rounds: int, device: str = "cpu", sample: float = 0.05
) -> dict[str, Row]:
    """Time the candidates one after another, ``rounds`` times over.

    Args:
        candidates: functions by name.
        rounds: samples of each.
        device: ``'cpu'`` or ``'cuda'``.
        sample: shortest duration of a sample in seconds; faster candidates are called several times in it.

    Returns:
        Median, quartiles and minimum in seconds per call, by name.
    """
    calls = {}
    for name, function in candidates.items():
        function()  # warm-up: plans, caches, memory
        calls[name] = max(1, ceil(sample / max(_time(function, device), 1e-6)))
    samples: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in tqdm(range(rounds), "rounds", leave=False, disable=None):
        for name, function in candidates.items():
            samples[name].append(_time(function, device, calls[name]))
    rows = {}
    for name, times in samples.items():
        low, median, high = (float(q) for q in np.quantile(times, (0.25, 0.5, 0.75)))
        rows[name] = dict(seconds=median, low=low, high=high, best=min(times))
    return rows


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
        result = function()
    size = sum(tensor.untyped_storage().nbytes() for address, tensor in kept.items() if address not in own)
    del result
    return size


def _time(function: Callable[[], Any], device: str, calls: int = 1) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    start = perf_counter()
    for _ in range(calls):
        function()
    if device == "cuda":
        torch.cuda.synchronize()
    return (perf_counter() - start) / calls


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


def lisa_work(batch: int, channels: int, patterns: int, grid: Sequence[int]) -> tuple[float, float]:
    """Return the smallest number of FLOPs and bytes of a LiSA forward pass by FFT.

    Each side has a forward real transform per channel and an inverse one per channel and pattern, 2.5 N log2 N each, the products
    with the spectra of the kernels, and the contraction. Tokens and kernels are read once, the output is written once.
    """
    n = prod(grid)
    maps = batch * channels
    flops = 2 * maps * ((1 + patterns) * 2.5 * n * log2(n) + patterns * (3 + 2) * n)
    return flops, 4 * n * (4 * maps + 17 * patterns)


def operator_candidates(
    batch: int, channels: int, patterns: int, grid: Sequence[int], device: str
) -> tuple[dict[str, Callable[[], Any]], dict[str, Callable[[], Any]]]:
    """Return the candidates at one shape by name: forward passes, and forward with backward passes.

    The forward pass of LiSA is that of evaluation, which caches the spectra of the kernels; training does not cache them.
    """
    query, key, value, *kernels = lisa_inputs(batch, channels, patterns, grid, device)
    kernel_a, kernel_b, bias = kernels
    last = [x.permute(0, *range(3, x.ndim), 1, 2).contiguous() for x in (query, key, value)]
    last += [kernel_a.movedim((0, 1), (-2, -1)).contiguous(), kernel_b.movedim(0, -1).contiguous(), bias]
    prepared = ops.LiSAKernels.prepare(*kernels)
    maps = value.flatten(1, 2)
    depthwise = torch.randn(channels, 1, *(7,) * len(grid), device=device)
    attention = [x.flatten(3).mT.contiguous() for x in (query, key, value)]
    heads, c = channels // 16, 16
    agents = torch.randn(batch, heads, 49, c, device=device)
    powers = [torch.randn(heads, c, device=device) for _ in range(2)]
    weights = [torch.randn(heads, c, c, device=device) / c for _ in range(2)]

    def convolve(x: Tensor, weight: Tensor) -> Tensor:
        return F.conv2d(x, weight, padding=3, groups=channels)

    inputs: dict[str, tuple[Callable[..., Tensor], list[Tensor]]] = {
        "LiSA": (ops.lisa, [query, key, value, *kernels]),
        "pseudo-code": (pseudo_code, last),
        "reference": (lambda *x: ops.lisa(*x, backend="reference"), [query, key, value, *kernels]),
        "softmax (SDPA)": (F.scaled_dot_product_attention, attention),
        "depthwise 7x7": (convolve, [maps, depthwise]),
        "MILA": (partial(ops.mila, grid=grid), attention),
        "TTT (gated unit)": (ops.ttt_glu, [*attention, *weights]),
        "polarity-aware": (ops.polarity_aware, [*attention, *powers]),
        "RALA": (partial(ops.rala, grid=grid), attention),
        "MALA": (partial(ops.mala, grid=grid), attention),
        "InLine": (ops.inline, attention),
        "agent (49)": (ops.agent, [*attention, agents]),
    }
    inputs = {name: entry for name, entry in inputs.items() if prod(grid) <= MAX_TOKENS.get(name, 1 << 30)}

    def forward(function, tensors):
        def run():
            with torch.no_grad():
                return function(*tensors)

        return run

    def train(function, tensors):
        leaves = [x.clone().requires_grad_() for x in tensors]
        gradient = torch.randn_like(function(*tensors))
        return lambda: torch.autograd.grad(function(*leaves), leaves, gradient)

    forwards = {name: forward(*entry) for name, entry in inputs.items()}
    forwards["LiSA"] = forward(prepared, [query, key, value])
    return forwards, {name: train(*entry) for name, entry in inputs.items()}


def benchmark_operators(rounds: int, device: str, machine: Machine, shapes: Iterable[tuple] = SHAPES) -> list[Row]:
    """Measure time and peak memory of the forward pass, and of both passes, with ratios to the pseudo-code form."""
    rows = []
    for case, *shape in shapes:
        for mode, candidates in zip(
            ("forward", "forward + backward"), operator_candidates(*shape, device), strict=True
        ):
            times = time_in_turns(candidates, rounds, device)
            memory = {name: peak_extra_bytes(function, device) for name, function in candidates.items()}
            for name, time in times.items():
                row = dict(case=case, mode=mode, name=name, **time, peak_bytes=memory[name])
                row["speedup"] = times["pseudo-code"]["seconds"] / time["seconds"]
                row["memory_ratio"] = memory[name] / max(1, memory["pseudo-code"])
                if name == "LiSA" and mode == "forward":
                    row["roofline"] = machine.roofline(*lisa_work(*shape), time["seconds"])
                rows.append(row)
    return rows


def benchmark_scaling(rounds: int, device: str, grids: Iterable[tuple[int, ...]] = SCALING_GRIDS) -> list[Row]:
    """Measure the forward pass of a layer of 64 channels and 8 patterns over the number of tokens."""
    rows = []
    for grid in grids:
        candidates, _ = operator_candidates(1, 64, 8, grid, device)
        candidates.pop("reference", None)
        times = time_in_turns(candidates, rounds, device)
        for name, time in times.items():
            row = dict(case="x".join(map(str, grid)), name=name, tokens=prod(grid), **time)
            row["peak_bytes"] = peak_extra_bytes(candidates[name], device)
            rows.append(row)
    return rows


# ---- thresholds of the dispatch table

# (c, D, grid) around the turning points of mmlisa.ops.lisa.dispatch.
TUNING_SHAPES = tuple(
    (c, patterns, (side, side)) for c, patterns in ((16, 8), (32, 16), (16, 2)) for side in (4, 5, 7, 8, 10, 12, 14, 20)
)


def measure_backends(rounds: int, device: str, shapes: Iterable[tuple] = TUNING_SHAPES) -> list[Row]:
    """Measure both passes of both sides of LiSA by every backend that ``'auto'`` chooses from.

    Returns:
        ``dict(case=…, side=…, size=…, name=…, seconds=…, …)``; the threshold of the side applies to the size.
    """
    rows = []
    for c, patterns, grid in shapes:
        # As many tokens as a batch of images has.
        tokens = torch.randn(max((1 << 14) // prod(grid), 1), c, *grid, device=device, requires_grad=True)
        s = torch.randn(len(tokens), patterns, *grid, device=device, requires_grad=True)
        kernel_a, kernel_b = (torch.randn(*lead, *grid, device=device) for lead in ((c, patterns), (patterns,)))
        bias = torch.randn(c, patterns, device=device)
        sides = {"encode": ({}, dispatch.encode_size(grid)), "mix": ({}, dispatch.mix_size(grid, c, patterns))}
        for name in ("circulant", "fft"):
            encode, mix = dispatch.classes(name)
            encode, mix = encode.prepare(kernel_a, None), mix.prepare(kernel_b, bias)
            sides["encode"][0][name] = partial(_forward_backward, encode, (tokens, tokens))
            sides["mix"][0][name] = partial(_forward_backward, mix, (s, tokens))
        for side, (candidates, size) in sides.items():
            for name, time in time_in_turns(candidates, rounds, device).items():
                rows.append(dict(case=f"c={c}, D={patterns}, {grid}", side=side, size=size, name=name, **time))
    return rows


def _forward_backward(side: Callable[..., Tensor], tensors: tuple[Tensor, ...]) -> None:
    torch.autograd.grad(side(*tensors).sum(), tensors)


def tune(rows: list[Row]) -> dispatch.Thresholds:
    """Return the thresholds whose choices are closest to the fastest ones, by the geometric mean of the times.

    A backend runs up to its threshold, and ``'fft'`` above all thresholds. The backend with the largest gain comes first.
    """
    return dispatch.Thresholds(
        *(_tune_side([row for row in rows if row["side"] == side]) for side in ("encode", "mix"))
    )


def _tune_side(rows: list[Row]) -> dict[str, float]:
    cases: dict[tuple[str, float], dict[str, float]] = {}
    for row in rows:
        cases.setdefault((row["case"], row["size"]), {})[row["name"]] = row["seconds"]
    found = []
    for name in dict.fromkeys(row["name"] for row in rows if row["name"] != "fft"):
        gains = [(size, log(times["fft"] / times[name])) for (_, size), times in cases.items() if name in times]
        totals = {limit: sum(gain for size, gain in gains if size <= limit) for limit, _ in gains}
        limit = max(totals, key=totals.__getitem__)
        if totals[limit] > 0:
            found.append((totals[limit], name, round(limit, 2)))
    return {name: limit for _, name, limit in sorted(found, reverse=True)}


# ---- networks


def build_backbone(cfg: dict[str, Any], *, training: bool = False) -> nn.Module:
    """Build a backbone from a ``type='scope.Name'`` or ``'timm.name'``, in training mode or optimised for inference."""
    options = dict(cfg)
    scope, name = options.pop("type").split(".", 1)
    if scope == "timm":
        with_cp = options.pop("with_cp", False)
        model = timm.create_model(name, **options)
        model.set_grad_checkpointing(with_cp)
    else:
        model = MMLISA_MODELS.build(cfg)
    return _in_mode(model, training)


def build_detector(backbone: dict[str, Any], channels: Sequence[int], *, training: bool = False) -> nn.Module:
    """Build mmdet's Mask R-CNN with FPN."""
    base = '_base_ = "mmdet::_base_/models/mask-rcnn_r50_fpn.py"\nmodel = dict(backbone=dict(_delete_=True))'
    cfg = Config.fromstring(base, ".py").model
    cfg.backbone.update(backbone)
    cfg.neck.in_channels = list(channels)
    cfg._scope_ = "mmdet"
    return _in_mode(MMLISA_MODELS.build(cfg), training)


def _in_mode(model: nn.Module, training: bool) -> nn.Module:
    model.train(training)  # returns nothing for mmdet's Swin
    return model if training else optimize_for_cpu(model)


def _in_inference(predict: Callable[[nn.Module, Tensor], Any]) -> Callable[[nn.Module, Tensor], Any]:
    def run(model: nn.Module, image: Tensor) -> Any:
        with torch.inference_mode():
            return predict(model, image)

    return run


def _detectors(names: Iterable[str]) -> dict[str, tuple[dict[str, Any], tuple[int, ...]]]:
    """Return the backbones except timm's, which mmdet cannot build."""
    return {name: BACKBONES[name] for name in names if not BACKBONES[name][0]["type"].startswith("timm.")}


def _data_sample(size: tuple[int, int]) -> Any:
    from mmdet.structures import DetDataSample

    return DetDataSample(
        metainfo=dict(img_shape=size, ori_shape=size, pad_shape=size, batch_input_shape=size, scale_factor=(1.0, 1.0))
    )


def benchmark_backbones(
    rounds: int,
    device: str,
    names: Iterable[str] = BACKBONES,
    sizes: Iterable[tuple[int, int]] = IMAGE_SIZES,
    batch: int = 1,
) -> list[Row]:
    """Measure inference of the backbones, with ratios to ``BASELINE``."""
    models = {name: build_backbone(BACKBONES[name][0]).to(device) for name in names}
    return _benchmark_images(models, _in_inference(lambda model, image: model(image)), rounds, device, sizes, batch)


def benchmark_compile(
    rounds: int,
    device: str,
    names: Iterable[str] = BACKBONES,
    sizes: Iterable[tuple[int, int]] = IMAGE_SIZES[:1],
    batch: int = 1,
) -> list[Row]:
    """Measure inference of each backbone without and with ``torch.compile`` (inductor), compiled for each size separately.

    ``speedup_compiled`` is the time without over the time with it. A backbone that cannot be compiled has a ``failure`` instead.
    """
    run = _in_inference(lambda model, image: model(image))
    rows = []
    for name, (height, width) in product(names, sizes):
        model = build_backbone(BACKBONES[name][0]).to(device)
        image = torch.randn(batch, 3, height, width, device=device)
        torch.compiler.reset()
        compiled = torch.compile(model, dynamic=False)
        row = dict(case=f"{height}x{width}", name=name, batch=batch)
        start = perf_counter()
        try:
            results = run(compiled, image)
        except Exception as error:  # whatever the compiler raises
            rows.append({**row, "failure": f"{type(error).__name__}: {error}".splitlines()[0]})
            continue
        row["compile_seconds"] = perf_counter() - start
        row["error"] = max(
            float((y - x).abs().max() / x.abs().max()) for x, y in zip(run(model, image), results, strict=True)
        )
        times = time_in_turns(
            {"eager": partial(run, model, image), "compiled": partial(run, compiled, image)}, rounds, device
        )
        row |= times["compiled"]
        row["speedup_compiled"] = times["eager"]["seconds"] / row["seconds"]
        rows.append(row)
    return rows


# Kinds of PyTorch's operations by parts of their names; the first that fits.
KINDS = {
    "matrix products": ("mm", "dot_product"),
    "convolutions": ("conv",),
    "FFTs": ("_fft_",),
    "activations": ("gelu", "softmax", "relu", "clamp_min", "threshold", "silu", "hardswish", "sigmoid", "tanh"),
    "norms": ("_norm",),
    "copies": ("copy_", "cat", "fill_", "index", "pad"),
    "element-wise, sums": ("add", "sub", "mul", "div", "sum", "mean", "pow", "complex", "rsqrt"),
}
REST = "the rest"


def benchmark_profile(
    rounds: int,
    device: str,
    names: Iterable[str] = BACKBONES,
    sizes: Iterable[tuple[int, int]] = TRAINING_SIZES[1:2],
    batch: int = 1,
) -> list[Row]:
    """Measure the seconds of a forward and backward pass by kind of operation; each counts without the operations it calls."""
    rows = []
    for (height, width), name in product(sizes, names):
        model = build_backbone(BACKBONES[name][0], training=True).to(device)
        image = torch.randn(batch, 3, height, width, device=device)

        def step(model: nn.Module = model, image: Tensor = image) -> None:
            sum(one.mean() for one in model(image)).backward()

        step()
        with torch.profiler.profile() as profiler:
            for _ in range(rounds):
                step()
        seconds = dict.fromkeys((*KINDS, REST), 0.0)
        for event in profiler.key_averages():
            # The kernels of a GPU are events, too; the operation that starts them includes their time.
            if event.device_type == torch.autograd.DeviceType.CPU:
                own = event.self_device_time_total if device == "cuda" else event.self_cpu_time_total
                seconds[_kind(event.key)] += own / rounds / 1e6
        rows.append(dict(case=f"{height}x{width}", name=name, batch=batch, seconds_by_kind=seconds))
    return rows


def _kind(event: str) -> str:
    if not event.startswith("aten::"):  # the events around PyTorch's operations
        return REST
    return next((kind for kind, parts in KINDS.items() if any(part in event for part in parts)), REST)


def benchmark_detectors(
    rounds: int, device: str, names: Iterable[str] = BACKBONES, sizes: Iterable[tuple[int, int]] = ((800, 1344),)
) -> list[Row]:
    """Measure the prediction of a whole Mask R-CNN with random weights, without the backbones of timm."""

    def predict(model: nn.Module, image: Tensor) -> Any:
        return model(image, [_data_sample(tuple(image.shape[-2:]))], mode="predict")

    models = {name: build_detector(*entry).to(device) for name, entry in _detectors(names).items()}
    return _benchmark_images(models, _in_inference(predict), rounds, device, sizes, batch=1)


def benchmark_training(
    rounds: int,
    device: str,
    names: Iterable[str] = BACKBONES,
    sizes: Iterable[tuple[int, int]] = TRAINING_SIZES,
    batch: int = 1,
    *,
    whole: bool = False,
    amp: bool = False,
    with_cp: bool = False,
) -> list[Row]:
    """Measure a forward and backward pass, the tensors saved between them and the peak memory, with ratios to ``BASELINE``.

    Args:
        whole: measure a Mask R-CNN with eight objects in each image instead of the backbone; timm's backbones are left out.
        amp: use autocast, with bf16 on a CPU and fp16 on a GPU.
        with_cp: recompute the blocks in the backward pass; the saved tensors are not measured then.
    """
    options = dict(with_cp=True) if with_cp else {}
    if whole:
        chosen = {name: ({**cfg, **options}, channels) for name, (cfg, channels) in _detectors(names).items()}
        models = {name: build_detector(*entry, training=True).to(device) for name, entry in chosen.items()}
    else:
        chosen = {name: {**BACKBONES[name][0], **options} for name in names}
        models = {name: build_backbone(cfg, training=True).to(device) for name, cfg in chosen.items()}

    def loss(model: nn.Module, image: Tensor) -> Tensor:
        with torch.autocast(device, enabled=amp):
            if not whole:
                return sum(one.float().mean() for one in model(image))
            losses = model(image, [_labelled_sample(image) for _ in image], mode="loss")
        return sum(part.sum() for value in losses.values() for part in (value if isinstance(value, list) else [value]))

    def step(model: nn.Module, image: Tensor) -> None:
        loss(model, image).backward()
        model.zero_grad(set_to_none=True)

    rows = _benchmark_images(models, step, rounds, device, sizes, batch, saved=None if with_cp else loss)
    return [{**row, "mode": f"{'AMP' if amp else 'fp32'}{', with_cp' * with_cp}"} for row in rows]


def _labelled_sample(image: Tensor) -> Any:
    """Return a data sample with eight rectangles of a sixteenth to a fourth of the image's sides."""
    from mmdet.structures.mask import BitmapMasks
    from mmengine.structures import InstanceData

    height, width = image.shape[-2:]
    random = np.random.default_rng(0)
    size = random.uniform(1 / 16, 1 / 4, (8, 2)) * (width, height)
    corner = random.uniform(0, 1, (8, 2)) * ((width, height) - size)
    boxes = np.concatenate([corner, corner + size], 1)
    masks = np.zeros((8, height, width), np.uint8)
    for mask, (left, top, right, bottom) in zip(masks, boxes.astype(int), strict=True):
        mask[top : bottom + 1, left : right + 1] = 1
    sample = _data_sample((height, width))
    sample.gt_instances = InstanceData(
        bboxes=torch.as_tensor(boxes, dtype=torch.float32, device=image.device),
        labels=torch.arange(8, device=image.device),
        masks=BitmapMasks(masks, height, width),
    )
    sample.ignored_instances = InstanceData(
        bboxes=sample.gt_instances.bboxes[:0], labels=sample.gt_instances.labels[:0]
    )
    return sample


def _benchmark_images(models, run, rounds, device, sizes, batch, saved=None) -> list[Row]:
    """Time ``run(model, image)``, and measure the tensors that the forward pass ``saved`` keeps, if it is given."""
    rows = []
    for height, width in sizes:
        image = torch.randn(batch, 3, height, width, device=device)
        candidates = {name: partial(run, model, image) for name, model in models.items()}
        times = time_in_turns(candidates, rounds, device)
        kept = {name: saved_bytes(partial(saved, model, image), model) for name, model in models.items() if saved}
        for name, time in times.items():
            row = dict(case=f"{height}x{width}", name=name, batch=batch, **time)
            row["images_per_second"] = batch / time["seconds"]
            row["ns_per_pixel"] = time["seconds"] / (batch * height * width) * 1e9
            row["peak_bytes"] = peak_extra_bytes(candidates[name], device)
            if saved:
                row["saved_bytes"] = kept[name]
            if BASELINE in times:
                row["ratio"] = time["seconds"] / times[BASELINE]["seconds"]
                if saved:
                    row["saved_ratio"] = kept[name] / kept[BASELINE]
            rows.append(row)
    return rows


# ---- reports

_COLUMNS: dict[str, tuple[str, Callable[[Row], str]]] = {
    "mode": ("pass", lambda r: r["mode"]),
    "seconds": (
        "median ms (quartiles)",
        lambda r: r.get("failure") or f"{_ms(r['seconds'])} ({_ms(r['low'])}-{_ms(r['high'])})",
    ),
    "finite": ("finite", lambda r: r.get("failure") or ("yes" if r["finite"] else "**no**")),
    "over_softmax": ("time / softmax", lambda r: f"{r['over_softmax']:.2f}" if "over_softmax" in r else ""),
    "seconds_by_kind": ("share of the time", lambda r: _shares(r["seconds_by_kind"])),
    "speedup_compiled": ("speed / eager", lambda r: f"{r['speedup_compiled']:.2f}" if "speedup_compiled" in r else ""),
    "error": ("relative difference", lambda r: f"{r['error']:.0e}" if "error" in r else ""),
    "compile_seconds": ("compiling, s", lambda r: f"{r['compile_seconds']:.0f}" if "compile_seconds" in r else ""),
    "peak_bytes": ("peak extra MB", lambda r: f"{r['peak_bytes'] / 1e6:.1f}" if "peak_bytes" in r else ""),
    "speedup": ("speed / pseudo-code", lambda r: f"{r['speedup']:.2f}"),
    "memory_ratio": ("memory / pseudo-code", lambda r: f"{r['memory_ratio']:.2f}"),
    "roofline": ("roofline", lambda r: f"{r['roofline']:.1%}" if "roofline" in r else ""),
    "images_per_second": ("images/s", lambda r: f"{r['images_per_second']:.2f}"),
    "ns_per_pixel": ("ns/pixel", lambda r: f"{r['ns_per_pixel']:.0f}"),
    "ratio": (f"time / {BASELINE}", lambda r: f"{r['ratio']:.2f}"),
    "saved_bytes": ("saved MB", lambda r: f"{r['saved_bytes'] / 1e6:.1f}"),
    "saved_ratio": (f"saved / {BASELINE}", lambda r: f"{r['saved_ratio']:.2f}"),
}


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g}" if seconds < 1 else f"{seconds * 1e3:.0f}"


def _shares(seconds: dict[str, float]) -> str:
    total = sum(seconds.values())
    return ", ".join(f"{kind} {time / total:.0%}" for kind, time in sorted(seconds.items(), key=lambda item: -item[1]))


def to_markdown(title: str, rows: list[Row]) -> str:
    """Return a table of all columns that occur in the rows, and the geometric means of LiSA's speed-ups by pass."""
    columns = [column for key, column in _COLUMNS.items() if any(key in row for row in rows)]
    lines = [f"## {title}", "", "| case | name | " + " | ".join(head for head, _ in columns) + " |"]
    lines.append("|---" * (2 + len(columns)) + "|")
    for row in rows:
        lines.append(f"| {row['case']} | {row['name']} | " + " | ".join(show(row) for _, show in columns) + " |")
    for mode in dict.fromkeys(row.get("mode") for row in rows if "speedup" in row):
        speedups = [row["speedup"] for row in rows if row["mode"] == mode and row["name"] == "LiSA"]
        mean, least = np.exp(np.log(speedups).mean()), min(speedups)
        lines += ["", f"Speed of LiSA over the pseudo-code, {mode}: geometric mean {mean:.2f}, least {least:.2f}."]
    return "\n".join(lines) + "\n"
