"""Latency of exported networks: PyTorch eager and compiled, onnxruntime, OpenVINO and ncnn, in fp32 and int8.

Backbones return their feature maps, detectors the maps of their heads: decoding and NMS cost the same for all backbones, and ncnn
has no operators for them. All engines of one network, size and number of threads take turns in one process.
"""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from mmlisa import ops
from mmlisa.deploy import export
from mmlisa.deploy.cpu import optimize_for_cpu
from mmlisa.ops.lisa import LiSAKernels
from mmlisa.ops.lisa.circulant import EncodeCirculant, MixCirculant
from mmlisa.registry import MODELS
from mmlisa.training.building import build_model
from mmlisa.training.config import load_config

from .benchmark import BACKBONES, Row, time_in_turns
from .environment import describe_environment

Run = Callable[[], Sequence[Any]]


@dataclass(frozen=True)
class Network:
    """A backbone of ``BACKBONES``, or the detector of a config, with overrides, and the image sizes to measure."""

    sizes: tuple[tuple[int, int], ...]
    config: str | None = None
    options: dict[str, Any] | None = None

    def build(self, name: str) -> nn.Module:
        """``forward(image: [1, 3, H, W])`` -> maps; random weights, in evaluation."""
        torch.manual_seed(0)
        if self.config is None:
            return _Maps(MODELS.build(BACKBONES[name][0]))
        return export.Exportable(build_model(load_config(self.config, options=deepcopy(self.options))))


class _Maps(nn.Module):
    """A backbone whose maps are a tuple."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone
        backbone.train(False)  # returns nothing for mmdet's Swin
        backbone.requires_grad_(False)

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.backbone(image))


def _picodets() -> Iterator[tuple[str, Network]]:
    for letter, scale, sizes in (("S", 0.75, (320, 416)), ("M", 1.5, (416,)), ("L", 2.0, (416,))):
        lcnet, esnet = (f"picodet_castling_{kind}_{letter.lower()}" for kind in ("lcnet", "esnet"))
        plain = {"model.backbone": dict(_delete_=True, type="mmlisa.LCNet", arch=f"x{scale}", out_indices=(1, 2, 3))}
        for size in sizes:
            case = ((size, size),)
            yield f"PicoDet-{letter} {size}, LCNet", Network(case, f"{lcnet}_{size}_coco.py", plain)
            yield f"PicoDet-{letter} {size}, Castling-LCNet", Network(case, f"{lcnet}_{size}_coco.py")
            yield f"PicoDet-{letter} {size}, Castling-ESNet", Network(case, f"{esnet}_{size}_coco.py")


NETWORKS = {
    name: Network(((224, 224), (800, 1344)))
    for name in ("HyLiSANet-S", "LiSANet-S", "FLatten-Swin-T", "iViT-T", "Swin-T")
} | dict(_picodets())


def write_files(name: str, size: tuple[int, int], folder: Path) -> dict[str, Path]:
    """The network of a name and size as files by format, those already in ``folder`` as they are."""
    stem = folder / f"{name.replace(', ', '_').replace(' ', '_')}_{size[0]}x{size[1]}"
    onnx, ncnn = (stem.with_name(stem.name + suffix) for suffix in (".onnx", ".ncnn.param"))
    network = NETWORKS[name]
    image = torch.randn(1, 3, *size)
    if not onnx.is_file():
        export.export(network.build(name), onnx, size)
    if network.config and not ncnn.is_file():
        try:
            convert_to_ncnn(network.build(name), image, stem)
        except ValueError as error:
            print(f"{name} without ncnn: {error}")
    return {"onnx": onnx} | ({"ncnn": ncnn} if ncnn.is_file() else {})


class _WithoutMovedim(TorchFunctionMode):
    """Records ``permute`` in the place of ``movedim`` of one axis, which ncnn does not have."""

    def __torch_function__(self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is Tensor.movedim and isinstance(args[1], int):
            x, source, target = args
            order = [*range(x.ndim)]
            order.insert(target % x.ndim, order.pop(source))
            return x.permute(order)
        return function(*args, **(kwargs or {}))


def convert_to_ncnn(model: nn.Module, image: Tensor, stem: Path) -> None:
    """Write ``<stem>.ncnn.param`` and ``.ncnn.bin`` through TorchScript and pnnx.

    Raises:
        ValueError: operators that ncnn does not have, or that pnnx cannot convert; names them.
    """
    import pnnx

    with torch.no_grad(), _WithoutMovedim(), TemporaryDirectory() as folder:
        torch.jit.trace(model, image, check_trace=False).save(f"{folder}/model.pt")
        shape = ",".join(map(str, image.shape))
        command = [pnnx.EXEC_PATH, "model.pt", f"inputshape=[{shape}]", "fp16=0"]
        said = subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder).stderr
        if warnings := [line for line in said.splitlines() if "unsupported" in line]:  # it writes a wrong file then
            raise ValueError(f"pnnx says: {', '.join(sorted(set(warnings)))}")
        layers = [line.split()[0] for line in Path(folder, "model.ncnn.param").read_text().splitlines()[2:]]
        if unknown := sorted({layer for layer in layers if "." in layer or "::" in layer}):
            raise ValueError(f"ncnn has no operator {', '.join(unknown)}")
        for suffix in (".ncnn.param", ".ncnn.bin"):
            shutil.copy(f"{folder}/model{suffix}", f"{stem}{suffix}")


def engines(
    model: nn.Module, files: dict[str, Path], image: Tensor, threads: int, compiled: bool = True
) -> dict[str, Run]:
    """What to call, by engine and precision; ``compiled``: with ``torch.compile``, which takes up to a minute per network."""
    torch.set_num_threads(threads)
    torch.compiler.reset()
    fast = optimize_for_cpu(deepcopy(model))
    runs: dict[str, Run] = {"eager fp32": partial(_infer, fast, image)}
    if compiled:
        runs["compiled fp32"] = partial(_infer, torch.compile(fast, dynamic=False), image)
    file = files["onnx"]
    runs["onnxruntime fp32"] = _onnxruntime(file, {"image": image.numpy()}, threads)
    try:
        runs["OpenVINO fp32"] = _openvino(file, image.numpy(), threads)
    except RuntimeError as error:
        print(f"OpenVINO cannot compile {file.name}: {str(error).strip().splitlines()[-1]}")
    if "ncnn" in files:
        runs["ncnn fp32"] = _ncnn(files["ncnn"], image.numpy(), threads)
    return runs


@torch.inference_mode()
def _infer(model: nn.Module, image: Tensor) -> Sequence[Tensor]:
    return model(image)


def _onnxruntime(file: Path, inputs: dict[str, np.ndarray], threads: int) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, threads
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, inputs)


def _openvino(file: Path, image: np.ndarray, threads: int) -> Run:
    import openvino

    exact = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    compiled = openvino.compile_model(file, "CPU", exact)
    return lambda: list(compiled(image).values())


def _ncnn(param: Path, image: np.ndarray, threads: int) -> Run:
    import ncnn

    net = ncnn.Net()
    net.opt.num_threads = threads
    net.opt.use_fp16_packed = net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = False
    net.opt.use_bf16_storage = False
    if net.load_param(str(param)) or net.load_model(str(param.with_suffix(".bin"))):
        raise ValueError(f"ncnn cannot load {param}")
    count = len(net.output_names())

    def run() -> list[np.ndarray]:
        extractor = net.create_extractor()
        extractor.input("in0", ncnn.Mat(image[0]))
        return [np.array(extractor.extract(f"out{i}")[1]) for i in range(count)]

    return run


def difference(found: Sequence[Any], expected: Sequence[Tensor]) -> float:
    """The largest difference of any map, over the map's largest distance from its mean."""
    pairs = zip((torch.as_tensor(np.asarray(one)) for one in found), expected, strict=True)
    return max(float((f.reshape(e.shape) - e).abs().max() / (e - e.mean()).abs().max()) for f, e in pairs)


def measure(
    name: str, size: tuple[int, int], threads: int, rounds: int, folder: Path, compiled: bool = True
) -> list[Row]:
    """Rows of one network at one size: ``dict(case, name, threads, engine, precision, seconds, …, ratio, error)``.

    ``ratio`` is the time over eager PyTorch's, ``error`` the largest relative difference from it.
    """
    files = write_files(name, size, folder)
    torch.manual_seed(1)
    model, image = NETWORKS[name].build(name), torch.randn(1, 3, *size)
    runs = engines(model, files, image, threads, compiled)
    expected = runs["eager fp32"]()
    errors = {key: difference(run(), expected) for key, run in runs.items()}
    times = time_in_turns(runs, rounds)
    rows = []
    for key, time in times.items():
        engine, precision = key.split()
        row = dict(case=f"{size[0]}x{size[1]}", name=name, threads=threads, engine=engine, precision=precision)
        rows.append(row | time | dict(ratio=time["seconds"] / times["eager fp32"]["seconds"], error=errors[key]))
    return rows


# ---- the form of LiSA

FORMS = ("dft", "rows", "circulant", "DFT operator")
# Tokens up to which a form is measured: the circulant matrices of 28x28 take 319 MB, the operator takes seconds at 25x42.
MOST_TOKENS = {"circulant": 400, "DFT operator": 1100}
FORM_GRIDS = {(7, 7): 24, (14, 14): 20, (28, 28): 8, (25, 42): 24, (50, 84): 20}  # and heads, as in LiSANet-S


class _Form(nn.Module):
    """LiSA in a form, as :func:`mmlisa.ops.lisa` computes it: ``query, key, value: [M, c, *grid]`` -> ``[M, c, *grid]``."""

    def __init__(self, form: str, kernel_a: Tensor, kernel_b: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.form, self.kernels, self.bias = form, (kernel_a, kernel_b, bias), bias
        if form == "circulant":
            self.encode, self.mix = EncodeCirculant.prepare(kernel_a, None).a, MixCirculant.prepare(kernel_b, bias)
        elif form == "DFT operator":
            self.spectra = [
                torch.view_as_real(torch.fft.fft2(x)) for x in (kernel_a.transpose(0, 1), kernel_b[:, None])
            ]

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        if self.form in ("dft", "rows"):
            return LiSAKernels.prepare(*self.kernels, backend=self.form)(query[None], key[None], value[None])[0]
        if self.form == "circulant":
            g = (key.flatten(2).transpose(0, 1) @ self.encode).unflatten(2, (self.bias.shape[1], -1))
            s = (g * query.flatten(2).transpose(0, 1)[:, :, None]).sum(0)
            return self.mix(s.unflatten(2, query.shape[2:]), value)
        s = (query[:, None] * _convolve(key, self.spectra[0])).sum(2)
        return (s[:, :, None] * (_convolve(value, self.spectra[1]) + self.bias.T[:, :, None, None])).sum(1)


def _convolve(x: Tensor, spectrum: Tensor) -> Tensor:
    """With PyTorch's transforms, which the exporter turns into ONNX's DFT; spectra are pairs of real numbers."""
    pairs = torch.stack([x, torch.zeros_like(x)], dim=-1)
    (a, b), (c, d) = (
        y.unbind(-1) for y in (torch.view_as_real(torch.fft.fft2(torch.view_as_complex(pairs)))[:, None], spectrum)
    )
    product = torch.view_as_complex(torch.stack([a * c - b * d, a * d + b * c], dim=-1))
    return torch.view_as_real(torch.fft.ifft2(product))[..., 0]


def benchmark_forms(rounds: int) -> list[Row]:
    """One LiSA layer of each grid of LiSANet-S, in PyTorch and, by form, in onnxruntime."""
    with TemporaryDirectory() as folder:
        return [row for grid, heads in FORM_GRIDS.items() for row in measure_forms(grid, heads, rounds, Path(folder))]


def measure_forms(grid: tuple[int, int], heads: int, rounds: int, folder: Path, patterns: int = 8) -> list[Row]:
    """The rows of a grid; ``megabytes`` is the file. PyTorch's number of threads holds for onnxruntime, too."""
    import onnx

    torch.manual_seed(0)
    tokens = [torch.randn(heads, 16, *grid) for _ in range(3)]
    kernels = [torch.randn(*n, *grid) / prod(grid) ** 0.5 for n in ((16, patterns), (patterns,))]
    kernels.append(torch.randn(16, patterns))
    names = ("query", "key", "value")
    runs: dict[str, Run] = {"eager": lambda: [ops.lisa(*(x[None] for x in tokens), *kernels)[0]]}
    sizes = {}
    for form in FORMS:
        if prod(grid) > MOST_TOKENS.get(form, prod(grid)):
            continue
        file = folder / f"lisa_{form.replace(' ', '_')}_{grid[0]}x{grid[1]}.onnx"
        with torch.no_grad():
            onnx.save(export._to_onnx(_Form(form, *kernels), tuple(tokens), None, names, ["y"]), file)
        sizes[form] = file.stat().st_size / 1e6
        runs[form] = _onnxruntime(
            file, dict(zip(names, (x.numpy() for x in tokens), strict=True)), torch.get_num_threads()
        )
    with torch.no_grad():
        expected = runs["eager"]()
        errors = {form: difference(call(), expected) for form, call in runs.items()}
        times = time_in_turns(runs, rounds)
    case = f"{grid[0]}x{grid[1]}"
    return [
        dict(case=case, name=form, heads=heads, error=errors[form], megabytes=sizes.get(form), **time)
        for form, time in times.items()
    ]


def run(
    names: Sequence[str],
    sizes: Sequence[tuple[int, int]] | None,
    threads: Sequence[int],
    rounds: int,
    out: Path,
    folder: Path | None = None,
    compiled: bool = True,
) -> str:
    """Measure what ``out`` (JSON) does not hold yet, and write it after every network. Rows of another commit are replaced.

    Args:
        names: of :data:`NETWORKS`.
        sizes: H and W; None for all of each network.
        threads: numbers of threads.
        rounds: samples of each engine.
        out: ``<name>.json``.
        folder: of the exported files, which are kept; None for one of this commit in ``work_dirs/deploy``.
        compiled: see :func:`engines`.

    Returns:
        The table.

    Raises:
        ImportError: an engine is not installed.
    """
    missing = [name for name in ("openvino", "ncnn", "pnnx", "onnxruntime") if find_spec(name) is None]
    if missing:
        raise ImportError(f"--suite deploy needs {', '.join(missing)}: pip install {' '.join(missing)}")
    environment = describe_environment()
    folder = folder or Path("work_dirs/deploy") / environment["commit"]
    for needed in (folder, out.parent):
        needed.mkdir(parents=True, exist_ok=True)
    data = json.loads(out.read_text()) if out.is_file() else dict(rows=[])
    if data.get("commit") != environment["commit"]:
        data = dict(rows=[])
    done = {(row["name"], row["case"], row["threads"]) for row in data["rows"]}
    for name in names:
        for size in NETWORKS[name].sizes:
            for count in threads:
                if (sizes and size not in sizes) or (name, f"{size[0]}x{size[1]}", count) in done:
                    continue
                print(f"{name}, {size[0]}x{size[1]}, threads: {count}", flush=True)
                data = dict(environment, rows=[*data["rows"], *measure(name, size, count, rounds, folder, compiled)])
                out.write_text(json.dumps(data, indent=1) + "\n")
    return to_markdown(data["rows"])


def to_markdown(rows: list[Row]) -> str:
    """One table per size and number of threads: milliseconds by network and engine, and the ratio to eager PyTorch."""
    columns = list(dict.fromkeys(f"{row['engine']} {row['precision']}" for row in rows))
    lines = []
    for case, threads in dict.fromkeys((row["case"], row["threads"]) for row in rows):
        lines += [f"### {case}, {threads} thread{'s' * (threads > 1)}", ""]
        lines += ["| ms (over eager) | " + " | ".join(columns) + " |", "|---" * (1 + len(columns)) + "|"]
        chosen = [row for row in rows if (row["case"], row["threads"]) == (case, threads)]
        for name in dict.fromkeys(row["name"] for row in chosen):
            cells = {f"{row['engine']} {row['precision']}": row for row in chosen if row["name"] == name}
            texts = [
                f"{cells[c]['seconds'] * 1e3:.3g} ({cells[c]['ratio']:.2f})" if c in cells else "" for c in columns
            ]
            lines.append(f"| {name} | " + " | ".join(texts) + " |")
        lines.append("")
    return "\n".join(lines)
