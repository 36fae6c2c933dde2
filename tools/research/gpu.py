"""One run on one GPU, most valuable first: numerics, the papers' tables, LiSA's dispatch, training, inference and a detector.

A part yields cases: a row's first columns, and the function that measures the others. What a case raises becomes its row's
``error``. The file is written after every row, so that a run that is stopped keeps them.
"""

import copy
import gc
import inspect
import json
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from importlib.util import find_spec
from itertools import product, takewhile
from math import inf, prod
from pathlib import Path
from time import perf_counter, strftime
from typing import Any, NamedTuple

import timm
import torch
import torch.nn.functional as F
import yaml
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.module import register_module_forward_hook

from mmlisa import ops
from mmlisa.checkpoints import atomic_path
from mmlisa.models import backbones
from mmlisa.ops import circular
from mmlisa.registry import MODELS
from research import benchmark

Row = dict[str, Any]
Cases = Iterator[tuple[Row, Callable[[], Row]]]
_DATA = yaml.safe_load(Path(__file__).with_suffix(".yml").read_text(encoding="utf-8"))
OURS = {name: benchmark.BACKBONES[name][0] for name in _DATA["ours"]}
RIVALS = {name: dict(type="mmlisa.TimmBackbone", **options) for name, options in _DATA["rivals"].items()}
LATE = "not measured: out of time"
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
# Largest errors: of operators; of backbones in evaluation, in training, and of all their gradients together. An operator may err
# by 1000 roundings in fp32, a tenth of what TF32 does, and by four spacings (2^-7, 2^-10) in half precision. A backbone adds the
# rounding of up to thirty blocks, which batch norms and ReLUs amplify in training: two to ten times what a CPU measures.
TOLERANCES = {"fp32": (1e-4, 1e-4, 1e-3, 2e-2), "bf16": (2**-5, 2**-4, 0.4, 0.7), "fp16": (2**-8, 2**-7, 0.06, 0.3)}


class Setting(NamedTuple):
    device: str
    tiny: bool  # small shapes, and no times

    def image(self, *size: int) -> Tensor:
        return torch.randn(size[0], 3, *((64, 96) if self.tiny else size[1:]), device=self.device)

    def autocast(self, kind: str) -> Any:
        return nullcontext() if kind == "fp32" else torch.autocast(self.device, TYPES[kind])

    def time(self, function: Callable[[], Any], limit: float = 1) -> Row:
        """Return the quartiles of a call's seconds and its peak of extra memory; a tiny run only calls it.

        Twenty samples are taken, or down to five of slow calls, which would exceed the ``limit`` in seconds.
        """
        function()
        if self.tiny:
            return {}
        rounds = max(5, min(20, int(limit / benchmark.time_calls(function, self.device))))
        times = benchmark.time_in_turns({"": function}, rounds, self.device, sample=limit / 100)[""]
        return times | dict(peak_bytes=benchmark.peak_extra_bytes(function, self.device))


def gradients_of(outputs: Sequence[Tensor], leaves: Sequence[Tensor], weights: Sequence[Tensor]) -> Sequence[Tensor]:
    weights = [weight.to(y.device, y.dtype) for weight, y in zip(weights, outputs, strict=True)]
    return torch.autograd.grad(outputs, leaves, weights, allow_unused=True, materialize_grads=True)


def weights_of(outputs: Sequence[Tensor]) -> list[Tensor]:
    """Gradients to begin with, scaled for fp16."""
    return [16 * torch.randn_like(y) / y.numel() ** 0.5 for y in outputs]


def trainable(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def step_of(forward: Callable[[], Sequence[Tensor]], leaves: Sequence[Tensor]) -> Callable[[], Sequence[Tensor]]:
    """Return a function that runs a forward and a backward pass; a first one shows that gradients are finite and not zero."""
    weights = weights_of(forward())
    found = gradients_of(forward(), leaves, weights)
    if not all(g.isfinite().all() for g in found) or not any(g.any() for g in found):
        raise FloatingPointError("gradients are not finite, or all zero")
    return lambda: gradients_of(forward(), leaves, weights)


def distance(found: Sequence[Tensor], expected: Sequence[Tensor], least: float = 0) -> float:
    """Return the norm of the differences over that of ``expected`` (at least ``least``); infinite unless all are finite."""
    gap = scale = 0.0
    for a, b in zip(found, expected, strict=True):
        if a.shape != b.shape:
            raise ValueError(f"shape {tuple(a.shape)} instead of {tuple(b.shape)}")
        gap += (a.detach().to(b.device, b.dtype) - b).abs().square().sum().item()
        scale += b.detach().abs().square().sum().item()
    return gap**0.5 / (max(scale**0.5, least) or 1) if gap + scale < inf else inf  # NaN is not less


def first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {(str(error).strip() or '-').splitlines()[0]}"[:160]


# ---- 1: numerics, against fp64 on the CPU


def judge(limits: dict[str, Sequence[float]], check: Callable[[str], Sequence[float]]) -> Row:
    """Return the errors that ``check`` finds by kind, or its exception, and the kinds with an error beyond its limit."""
    row, failed = {}, []
    for kind, limit in limits.items():
        try:
            errors = check(kind)
            row[kind] = " / ".join(f"{error:.0e}" for error in errors)
            failed += [] if all(error <= at for error, at in zip(errors, limit, strict=True)) else [kind]
        except Exception as error:
            row[kind] = first_line(error)
            failed.append(kind)
    return row | dict(failed=", ".join(failed))


_FORMS: dict[str, Callable[..., Tensor]] = {
    "cell_attention": lambda q, k, v, grid, backend: ops.cell_attention(q, k, v, grid, 4, 3, backend=backend),
    "interactive": lambda q, k, v, *mix, grid, backend: ops.interactive(
        q, k, v, grid, 9, mix_query=mix[:2], mix_key=mix[2:], backend=backend
    ),
    "linear_of": lambda x, shift, *layer: ops.linear_of(lambda x, shift: F.gelu(x + shift), (x, shift), *layer),
    "masked_softmax": lambda *qkv: ops.masked_softmax(*qkv, 0.02)[0],
    "pool_landmarks": partial(ops.pool_landmarks, landmarks=9),
    "resize_kernel": lambda kernel: ops.resize_kernel(kernel, (10, 5)),
    "resize_spectrum": lambda spectrum, grid: ops.resize_spectrum(spectrum, grid, (10, 5)),
}


def _draw(letters: str, grid: tuple[int, int]) -> Tensor:
    sizes = dict(b=[2], h=[2], n=[prod(grid)], d=[16], D=[3], g=grid, o=[2 * g - 1 for g in grid])
    sizes["f"] = [grid[0], grid[1] // 2 + 1]
    shape = [size for letter in letters for size in sizes.get(letter) or [int(letter)]]
    x = torch.randn(shape, dtype=torch.complex64 if "f" in letters else torch.float32)
    return x if letters[0] == "b" else x / 4


def _fp64(x: Tensor) -> Tensor:
    return x.detach().to("cpu", torch.complex128 if x.is_complex() else torch.float64)


def check_operator(setting: Setting, name: str, shapes: str, backend: str) -> Row:
    """Compare the value and all gradients on an even, an odd and a single-token grid, in pure types and under autocast."""
    function = _FORMS.get(name) or getattr(ops, name)
    names = inspect.signature(function).parameters

    def check(kind: str) -> list[float]:
        kind, _, mixed = kind.partition(" ")
        dtype, errors = torch.float32 if mixed else TYPES[kind], []
        torch.manual_seed(0)
        for grid in ((8, 12), (7, 9), (1, 1)):
            drawn = [_draw(letters, grid) for letters in shapes.split()]
            inputs = [(x if x.is_complex() else x.to(dtype)).to(setting.device).requires_grad_() for x in drawn]
            exact = [_fp64(x).requires_grad_() for x in inputs]
            options = dict(grid=grid) if "grid" in names else {}
            own, reference = ({"backend": b} if "backend" in names else {} for b in (backend, "reference"))
            with setting.autocast(kind if mixed else "fp32"):
                y = function(*inputs, **options, **own)
            expected, weight = function(*exact, **options, **reference), torch.randn_like(y)
            found, gradients = (gradients_of([v], x, [_fp64(weight)]) for v, x in ((y, inputs), (expected, exact)))
            # A gradient that cancels has the rounding of the others. Those of a single token's query and key nearly vanish: they
            # are rounding over the token's similarity to itself, which may be small.
            norms = [b.norm().item() for b in gradients]
            floor = 8 if grid == (1, 1) else 1 / 4
            leasts = [(floor if norm < max(norms) / 4 else 1 / 4) * max(norms) for norm in norms]
            errors += [distance([a], [b], least) for a, b, least in zip(found, gradients, leasts, strict=True)]
            errors += [distance([y], [expected])]
        return [max(errors)]

    kinds = ["fp32", "bf16", "fp16", "bf16 autocast", "fp16 autocast"]
    return judge({kind: TOLERANCES[kind.split()[0]][:1] for kind in kinds}, check)


def build_smallest(name: str, depth: int | None = None) -> nn.Module:
    """Build a backbone of its family's first arch, with up to ``depth`` blocks in each stage."""
    base, settings = next(iter(getattr(backbones, name).arch_settings.items()))
    arch: Row = {"base": base}
    if depth and "depths" in settings:
        arch["depths"] = [min(depth, blocks) for blocks in settings["depths"]]
    model = MODELS.build(dict(type=f"mmlisa.{name}", arch=arch))
    with torch.no_grad():
        for parameter in model.parameters():  # a new LCNet's maps are below fp16's range
            parameter.add_(0.02 * torch.randn_like(parameter))
    return model


def check_backbone(setting: Setting, name: str) -> Row:
    """Compare maps in evaluation and in training, and gradients of the image and all parameters."""
    model, image = build_smallest(name, setting.tiny), setting.image(2, 224, 320).cpu()
    weights: list[Tensor] = []

    def run(model: nn.Module, image: Tensor, kind: str) -> list[Sequence[Tensor]]:
        leaves = [image.requires_grad_(), *trainable(model)]
        with torch.no_grad(), setting.autocast(kind):
            maps = model.eval()(image)
        with setting.autocast(kind):
            trained = model.train()(image)
        weights[:] = weights or weights_of(trained)
        return [maps, [y.detach() for y in trained], gradients_of(trained, leaves, weights)]

    exact = run(copy.deepcopy(model).double(), image.double(), "fp32")

    def check(kind: str) -> list[float]:
        found = run(copy.deepcopy(model).to(setting.device), image.detach().to(setting.device), kind)
        errors = [max(distance([a], [b]) for a, b in zip(found[i], exact[i], strict=True)) for i in (0, 1)]
        errors.append(distance(found[2], exact[2]))
        if kind != "fp32" and errors[0] < 1e-5:
            raise RuntimeError("autocast changes nothing")
        return errors

    return judge({kind: limits[1:] for kind, limits in TOLERANCES.items()}, check)


def check_compiled(setting: Setting, name: str, training: bool) -> Row:
    """Capture a shallow network whole; Dynamo raises where the graph would break."""
    torch.compiler.reset()
    model, image = build_smallest(name, 1).to(setting.device).train(training), Setting(setting.device, True).image(2)
    forward = partial(torch.compile(model, fullgraph=True, backend="eager"), image)
    with torch.set_grad_enabled(training):
        step_of(forward, trainable(model)) if training else forward()
    return {"graph breaks": 0}


def numerics(setting: Setting) -> Cases:
    tf32, torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.allow_tf32, False  # convolutions of fp32 in fp32
    for shapes, names in _DATA["operators"].items():
        shapes = shapes.replace("QKV", "bhnd bhnd bhnd").replace("MAPS", "bhdg bhdg bhdg")
        for name, backend in ((n, b) for n in names for b in (circular.BACKENDS if n == "lisa" else ["auto"])):
            columns = dict(table="Operators", case=name, name=backend)
            yield columns, partial(check_operator, setting, name, shapes, backend)
    families = ["FLattenDeiT", "LiSANet", "iViT"] if setting.tiny else backbones.__all__
    for name in families:
        yield dict(table="Backbones", case="", name=name), partial(check_backbone, setting, name)
    for name, training in product(families, (False, True)):
        case = "training" if training else "inference"
        yield dict(table="torch.compile", case=case, name=name), partial(check_compiled, setting, name, training)
    torch.backends.cudnn.allow_tf32 = tf32


# ---- 2: the papers' tables


def run_block(setting: Setting, suite: Row, name: str, grid: list[int], kind: str, mode: str, group: Row) -> Row:
    """Measure a block at batch 32; ``(matrix)`` in its name keeps the attention from PyTorch's fused kernels.

    ``group`` collects the seconds of blocks with different attentions.
    """
    options, training = suite["attention"][name.removesuffix(" (matrix)")], mode == "training"
    block = benchmark.build_block(options, grid, suite["channels"], suite["num_heads"], suite["grids"])
    block, batch = block.to(setting.device).train(training), 2 if setting.tiny else 32
    x = torch.randn(batch, prod(grid), suite["channels"], device=setting.device, requires_grad=training)

    def forward() -> list[Tensor]:
        fused = sdpa_kernel(SDPBackend.MATH) if name.endswith("(matrix)") else nullcontext()
        with setting.autocast(kind), torch.set_grad_enabled(training), fused:
            return [block(x, grid)]

    row = setting.time(step_of(forward, [x, *block.parameters()]) if training else forward, 2)
    group |= {name: row["seconds"]} if row else {}
    base = group.get("softmax (matrix)") or group.get("MHSA")
    return row | ({"self-attention / this": base / row["seconds"]} if base and row else {})


def run_inference(setting: Setting, cfg: Row, kind: str, *size: int) -> Row:
    """Measure a network in a type of numbers with channels-last memory; half precision is compared with fp32."""
    model, image = MODELS.build(cfg).eval().to(setting.device), setting.image(*size)
    with torch.inference_mode():
        expected = model(image)
        model = model.to(dtype=TYPES[kind], memory_format=torch.channels_last)
        image = image.to(TYPES[kind], memory_format=torch.channels_last)
        error = distance(model(image), expected)
        row = setting.time(lambda: model(image))
    if error == inf:
        raise FloatingPointError("maps are not finite")
    row |= {"images/s": size[0] / row["seconds"]} if row else {}
    return row if kind == "fp32" else row | {"from fp32": error}


def _printed(table: Row, name: str, mode: str, i: int) -> Row:
    """Return the paper's milliseconds, their ratio to the first row's, and its memory."""
    if name not in table:
        return {}
    first, own = next(iter(table.values()))[mode][i], table[name][mode][i]
    ratio = {} if "OOM" in (first, own) else {"printed ratio": first / own}
    return {"printed ms": own, **ratio, "printed MB": table[name]["MB"][i]}


def papers(setting: Setting) -> Cases:
    for entry in _DATA["blocks"]:
        suite, printed = benchmark.SUITES[entry["suite"]], entry.get("printed", {})
        grids = list(enumerate(suite["grids"][: 1 if setting.tiny else None]))
        for kind, (i, grid), mode in product(
            ("fp32", "fp16") if printed else ["fp32"], grids, ("inference", "training")
        ):
            matrix, group = [next(iter(printed))] if printed and kind == "fp32" else [], {}
            for name in [*matrix, *suite["attention"]]:
                columns = dict(table=entry["table"], case=f"{grid[0]}x{grid[1]}", name=name, mode=f"{mode}, {kind}")
                columns |= _printed(printed, name, mode, i)
                yield columns, partial(run_block, setting, suite, name, grid, kind, mode, group)
    for entry in _DATA["networks"]:
        for i, size in enumerate(entry["sizes"][: 1 if setting.tiny else None]):
            for name, cfg in (entry.get("networks") or benchmark.SUITES[entry["suite"]]["networks"]).items():
                columns = dict(table=entry["table"], case="x".join(map(str, size)), name=name)
                columns |= {"printed": entry["printed"][name][i]} if "printed" in entry else {}
                yield columns, partial(run_inference, setting, cfg, "fp32", *size)


# ---- 3: LiSA's dispatch


def run_backends(
    setting: Setting, mix: bool, training: bool, heads: int, patterns: int, grid: Any, smaller: list[Row]
) -> Row:
    """Time a side by each backend, kernels included, which a GPU prepares in every call.

    A backend ten times slower than the fastest on one of the ``smaller`` grids is left out.
    """
    first, value = (torch.randn(heads, width, *grid, device=setting.device) for width in (patterns if mix else 16, 16))
    kernel = torch.randn(*(() if mix else (16,)), patterns, *grid, device=setting.device) / prod(grid) ** 0.5
    bias = torch.randn(16, patterns, device=setting.device) if mix else None
    leaves, expected = [x.requires_grad_(training) for x in (first, value, kernel)], []

    def milliseconds(backend: str) -> float | str:
        def forward() -> list[Tensor]:
            return [circular.prepare_side(backend, mix, kernel, bias, grid)(first, value)]

        try:
            expected.extend(forward() if not expected else [])
            if (error := distance(forward(), expected)) > TOLERANCES["fp32"][0]:
                return f"wrong: {error:.0e} from the others"
            row = setting.time(step_of(forward, leaves) if training else torch.inference_mode()(forward), 0.2)
            return row.get("seconds", 0) * 1e3
        except Exception as error:
            return first_line(error)

    slow = {
        name for row in smaller for name, ms in row.items() if isinstance(ms, float) and ms > 10 * row[row["fastest"]]
    }
    names = [name for name in ("fft", "circulant", "dft", "rows")[: 3 if mix else 4] if name not in slow]
    row: Row = {name: milliseconds(name) for name in names}
    row["size"] = circular.sizes(grid, 16, patterns)[mix]
    row["fastest"] = min((name for name in names if isinstance(row[name], float)), key=row.get)
    smaller.append(row)
    wins = [one["size"] for one in takewhile(lambda one: one["fastest"] == "circulant", smaller)]
    return row | {"circulant's limit": max(wins, default=0)}  # of the last grid: what this run suggests


def dispatching(setting: Setting) -> Cases:
    """Stages at 224 to 1344 pixels; the heads of two images of a detector's third stage, and of 32 of a classifier's."""
    grids = [(7, 7), (10, 10), (14, 14), (20, 20), (28, 28), (40, 40), (56, 56), (128, 128)]
    for heads, patterns, training in product((4,) if setting.tiny else (40, 640), (8, 16), (True, False)):
        for mix, today in enumerate(circular.THRESHOLDS["cuda"]):
            smaller: list[Row] = []
            for grid in grids[: 2 if setting.tiny else None]:
                table = (
                    f"LiSA's {'mixing' if mix else 'encoding'} in ms; largest size of the circulant form today: {today}"
                )
                case = f"{'training' if training else 'inference'}, {heads} heads, D = {patterns}"
                columns = dict(table=table, case=case, name=f"{grid[0]}x{grid[1]}")
                yield columns, partial(run_backends, setting, bool(mix), training, heads, patterns, grid, smaller)


# ---- 4 to 6: training, inference, a detector


def run_training(setting: Setting, cfg: Row, kind: str, mode: str) -> Row:
    """Measure a forward and a backward pass; ``mode`` may be ``'compiled'`` or ``'no recomputation'``."""
    model, image, row = MODELS.build(cfg).train().to(setting.device), setting.image(2, 800, 1344), {}
    start, call = perf_counter(), model
    if mode == "compiled":
        torch.compiler.reset()
        torch._dynamo.utils.counters.clear()
        call = torch.compile(model, backend="eager" if setting.tiny else "inductor")

    def forward(call: Callable[[Tensor], Sequence[Tensor]] = call) -> Sequence[Tensor]:
        with setting.autocast(kind):
            return call(image)

    # Layers run as they are where a hook watches them: nothing is recomputed.
    hook = register_module_forward_hook(lambda *_: None) if mode == "no recomputation" else None
    try:
        step = step_of(forward, trainable(model))
        if mode == "compiled":
            row = {} if setting.tiny else {"compiled in s": perf_counter() - start}
            row["from eager"] = distance(forward(), [y.detach() for y in forward(model)])
            row["graph breaks"] = sum(torch._dynamo.utils.counters["graph_break"].values())
        return setting.time(step) | row
    finally:
        if hook:
            hook.remove()


def training(setting: Setting) -> Cases:
    networks = OURS | RIVALS
    order = [
        *product(["bf16"], [""], networks),
        *product(["bf16"], ["no recomputation"], OURS),
        ("bf16", "compiled", "HyLiSANet-S"),
    ]
    order += [*product(["fp32", "fp16"], [""], networks), *product(["bf16"], ["compiled"], [*networks][1:])]
    for kind, mode, name in order[:: 14 if setting.tiny else 1]:
        table = f"Training step, 2 x 800x1344{', compiled' if mode == 'compiled' else ''}"
        columns = dict(table=table, case=mode, name=name, mode=kind)
        yield columns, partial(run_training, setting, networks[name], kind, mode)


def inference(setting: Setting) -> Cases:
    cases = list(product(((1, 224, 224), (32, 224, 224), (1, 800, 1344)), (OURS | RIVALS).items()))
    for size, (name, cfg) in cases[:: 8 if setting.tiny else 1]:
        columns = dict(table="Inference, fp16, channels last", case="x".join(map(str, size)), name=name)
        yield columns, partial(run_inference, setting, cfg, "fp16", *size)


def run_detector(setting: Setting, name: str) -> Row:
    """Train a Mask R-CNN on random images, with AMP on a GPU, as MMEngine's runner does."""
    from mmdet.testing import demo_mm_inputs
    from mmengine.optim import AmpOptimWrapper, OptimWrapper

    model = benchmark.build_detector(*benchmark.BACKBONES[name], training=True).to(setting.device)
    data = demo_mm_inputs(2, (3, 64, 96) if setting.tiny else (3, 800, 1333), [8, 8], with_mask=True)
    wrapper = AmpOptimWrapper if setting.device == "cuda" else OptimWrapper
    optimizer = wrapper(optimizer=torch.optim.AdamW(model.parameters(), 1e-4))
    losses: list[Tensor] = []
    row = setting.time(lambda: losses.append(model.train_step(data, optimizer)["loss"].detach()))
    found = torch.stack(losses).tolist()
    if not abs(sum(found)) < inf:
        raise FloatingPointError(f"losses {found}")
    return row | {"steps": len(found), "first loss": found[0], "last loss": found[-1]}


def detectors(setting: Setting) -> Cases:
    for name in ("HyLiSANet-S", "Swin-T"):
        yield dict(table="Mask R-CNN, 2 x 800x1344, AMP", case="", name=name), partial(run_detector, setting, name)


# ---- the run


class Part(NamedTuple):
    title: str
    seconds: float
    cases: Callable[[Setting], Cases]
    needs: str = "timm"


PARTS = {
    1: Part("Numerics", 130, numerics),
    2: Part("Tables of the papers", 90, papers),
    3: Part("LiSA's dispatch", 40, dispatching),
    4: Part("Training", 110, training),
    5: Part("Inference", 40, inference),
    6: Part("Mask R-CNN", 40, detectors, "mmdet"),
}


def fill(rows: list[Row], cases: Cases, setting: Setting, deadline: float, save: Callable[[], None]) -> None:
    """Measure the cases until the deadline. A row that would not end in time is named, but not begun."""
    longest: dict[str, float] = {}
    for columns, function in cases:
        start, table = perf_counter(), columns["table"]
        if start + longest.get(table, 60 if "compiled" in table else 0) > deadline and not setting.tiny:
            row = dict(error=LATE)
        else:
            try:
                row = function()
            except Exception as error:
                row = dict(error=first_line(error))
            longest[table] = max(longest.get(table, 0), perf_counter() - start)
        rows.append(columns | row)
        save()
        gc.collect()
        if setting.device == "cuda":
            torch.cuda.synchronize()  # raises if the device is lost
            torch.cuda.empty_cache()


def describe(setting: Setting, commit: str | None) -> str:
    """Return versions, and the rate of a GPU's products, which also shows that times are those of the device."""
    words = [f"PyTorch {torch.__version__}", f"timm {timm.__version__}", f"Python {platform.python_version()}"]
    if setting.device == "cuda":
        a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
        rate = 2 * 8192**3 / Setting("cuda", tiny=False).time(lambda: a @ a)["seconds"] / 1e12
        if not rate < 10_000:
            raise RuntimeError(f"a product at {rate:.0f} TFLOP/s: the times are not those of the device")
        words = [torch.cuda.get_device_name(), f"bf16 {rate:.0f} TFLOP/s", f"CUDA {torch.version.cuda}", *words]
        words.append(f"TF32 in convolutions: {torch.backends.cudnn.allow_tf32}")
    return ", ".join([*words, f"commit {commit or benchmark.describe_commit()}", strftime("%Y-%m-%d %H:%M")])


def to_markdown(part: Row) -> str:
    """Return the tables of a part, with what was not measured in one line."""
    tables = dict.fromkeys(row["table"] for row in part["rows"])
    found = [benchmark.to_markdown(t, [row for row in part["rows"] if row["table"] == t]) for t in tables]
    return "\n".join([f"## Part {part['title']}\n\n{part['machine']}. {part['note']}\n", *found])


def run(setting: Setting, numbers: Sequence[int], file: Path, end: float, commit: str | None) -> None:
    """Run parts until ``end`` of ``perf_counter``, write and print them; exit with 1 if part 1 found something wrong."""
    if setting.device == "cuda" and not torch.cuda.is_available():
        sys.exit("error: --device cuda: PyTorch finds no GPU; try --device cpu --tiny")
    torch.manual_seed(0)
    parts = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    machine = describe(setting, commit)
    gc.freeze()  # what was imported

    def save() -> None:
        with atomic_path(file) as target:
            target.write_text(json.dumps(parts, indent=1) + "\n", encoding="utf-8")

    for i, number in enumerate(numbers):
        title, seconds, cases, needs = PARTS[number]
        begin, waiting = perf_counter(), sum(PARTS[n].seconds for n in numbers[i:])
        part = dict(title=f"{number}: {title}", machine=machine, note="Unfinished.", rows=[])
        parts[str(number)], rows = part, part["rows"]
        if find_spec(needs) is None:
            part["note"] = f"Skipped: {needs} is not installed."
        else:
            fill(rows, cases(setting), setting, begin + (end - begin) * seconds / waiting, save)
            late = sum(row.get("error") == LATE for row in rows)
            part["note"] = f"{perf_counter() - begin:.0f} s, {late} of {len(rows)} rows not measured in its time."
            part["note"] += " A tiny run: no times." if setting.tiny else ""
        save()
        print(to_markdown(part), flush=True)
    checked = parts["1"]["rows"] if 1 in numbers else []
    if wrong := [row for row in checked if row.get("failed") or "error" in row]:
        sys.exit(
            f"error: part 1: {len(wrong)} of {len(checked)} rows failed or were not measured: see their last columns"
        )
