"""Measure operators, their scaling, backbones and detectors, in inference and in training, write JSON, and print a table."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path
from time import perf_counter

from mmlisa import cli
from mmlisa.errors import UserError

# Suites with figures and tables of papers, and of docs/foundation.md.
BLOCKS, NETWORKS = (
    ("interaction", "blocks", "blocks_192"),
    ("patches", "resolutions", "throughput", "latency", "foundation"),
)
SUITES = ("operators", "scaling", "backbones", "onnxruntime", "pixels", "detectors", "training", *BLOCKS, *NETWORKS)


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    argv = sys.argv[1:] if argv is None else argv
    if argv[:1] == ["gpu"]:
        return parse_gpu_args(argv[1:])
    parser = cli.build_parser(__doc__, epilog="`benchmark.py gpu` measures what a GPU has to show, in eight minutes.")
    parser.add_argument("--suite", nargs="+", choices=SUITES, default=SUITES, help="what to measure (default: all)")
    parser.add_argument("--models", nargs="+", metavar="NAME", help="backbones (default: all)")
    parser.add_argument("--size", nargs="+", type=lambda text: tuple(map(int, text.split("x"))), help="as 800x1344")
    parser.add_argument("--rounds", type=int, default=7, help="samples of each candidate (default: %(default)s)")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--out", type=Path, default=Path("docs/benchmarks"), help="folder (default: %(default)s)")
    return parser.parse_args(argv)


def parse_gpu_args(argv: Sequence[str]) -> argparse.Namespace:
    parser = cli.build_parser(
        "Check and measure the operators and networks on a GPU, most valuable first; write gpu.json."
    )
    parser.add_argument("--parts", nargs="+", type=int, choices=range(1, 7), default=range(1, 7), help="default: all")
    parser.add_argument("--minutes", type=float, default=7.5, help="for all parts (default: %(default)s)")
    parser.add_argument("--device", default="cuda", choices=("cpu", "cuda"))
    parser.add_argument("--tiny", action="store_true", help="try all parts with small shapes; no time is kept")
    parser.add_argument("--commit", help="of the sources, if they are not a clone")
    parser.add_argument("--out", type=Path, default=Path("work_dirs/gpu"), help="folder (default: %(default)s)")
    args = parser.parse_args(argv, argparse.Namespace(suite=None))
    if args.device == "cpu" and not args.tiny:
        parser.error("--device cpu: only with --tiny, since gpu.json is for GPUs")
    return args


def main(args: argparse.Namespace) -> None:
    os.environ["KINETO_LOG_LEVEL"] = "99"  # PyTorch's profiler prints two lines whenever it measures memory
    if args.suite is None:
        end = perf_counter() + 60 * args.minutes
        from research import gpu

        file = args.out / ("gpu_tiny.json" if args.tiny else "gpu.json")
        return gpu.run(gpu.Setting(args.device, args.tiny), args.parts, file, end, args.commit)
    import torch

    from research import benchmark, measured

    functions = {
        "operators": benchmark.benchmark_operators,
        "scaling": benchmark.benchmark_scaling,
        "onnxruntime": lambda rounds, _, **options: benchmark.benchmark_onnxruntime(rounds, **options),
        **dict.fromkeys(BLOCKS, benchmark.benchmark_blocks),
    }
    if unknown := set(args.models or ()).difference(benchmark.BACKBONES):
        raise UserError(f"--models: unknown {', '.join(unknown)}; choose from {', '.join(benchmark.BACKBONES)}")
    if args.size and (others := [suite for suite in args.suite if "sizes" not in benchmark.SUITES[suite]]):
        raise UserError(f"--size: the suites {', '.join(others)} have no image sizes; name others with --suite")
    args.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    for suite in args.suite:
        options = benchmark.SUITES[suite] | ({"sizes": args.size} if args.size else {})
        if "sizes" in options and suite not in NETWORKS:
            options["names"] = args.models or list(benchmark.BACKBONES)
        device = torch.cuda.get_device_name() if args.device == "cuda" else benchmark.describe_processor()
        runtime = f"PyTorch {torch.__version__}"
        if suite == "onnxruntime":
            runtime = f"onnxruntime {version('onnxruntime')}"
        machine = f"{device}, {runtime}, fp32, {args.rounds} interleaved rounds"
        rows = functions.get(suite, benchmark.benchmark_networks)(args.rounds, args.device, **options)
        result = dict(machine=machine, commit=benchmark.describe_commit(), date=str(date.today()), rows=rows)
        (args.out / f"{suite}_{args.device}.json").write_text(json.dumps(result, indent=1) + "\n")
        print(benchmark.to_markdown(suite, measured.with_ratios(rows)))


if __name__ == "__main__":
    cli.run(main, parse_args())
