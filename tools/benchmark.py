"""Measure operators, their scaling, backbones and detectors, in inference and in training, write JSON, and print a table."""

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path

from mmlisa import cli

# Suites with figures and tables of papers.
BLOCKS, NETWORKS = ("interaction", "blocks", "blocks_192"), ("patches", "resolutions", "throughput", "latency")
SUITES = ("operators", "scaling", "backbones", "onnxruntime", "pixels", "detectors", "training", *BLOCKS, *NETWORKS)


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.build_parser(__doc__)
    parser.add_argument("--suite", nargs="+", choices=SUITES, default=SUITES, help="what to measure (default: all)")
    parser.add_argument("--models", nargs="+", metavar="NAME", help="backbones (default: all)")
    parser.add_argument("--size", nargs="+", type=lambda text: tuple(map(int, text.split("x"))), help="as 800x1344")
    parser.add_argument("--rounds", type=int, default=7, help="samples of each candidate (default: %(default)s)")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--out", type=Path, default=Path("docs/benchmarks"), help="folder (default: %(default)s)")
    return parser.parse_args(argv)


def main(args: argparse.Namespace) -> None:
    os.environ["KINETO_LOG_LEVEL"] = "99"  # PyTorch's profiler prints two lines whenever it measures memory
    import torch

    from research import benchmark

    functions = {
        "operators": benchmark.benchmark_operators,
        "scaling": benchmark.benchmark_scaling,
        "onnxruntime": lambda rounds, _, **options: benchmark.benchmark_onnxruntime(rounds, **options),
        **dict.fromkeys(BLOCKS, benchmark.benchmark_blocks),
    }
    if unknown := set(args.models or ()).difference(benchmark.BACKBONES):
        raise ValueError(f"--models: unknown {', '.join(unknown)}; choose from {', '.join(benchmark.BACKBONES)}")
    if args.size and (others := [suite for suite in args.suite if "sizes" not in benchmark.SUITES[suite]]):
        raise ValueError(f"--size: the suites {', '.join(others)} have no image sizes; name others with --suite")
    args.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    for suite in args.suite:
        options = benchmark.SUITES[suite] | ({"sizes": args.size} if args.size else {})
        if "sizes" in options and suite not in NETWORKS:
            options["names"] = args.models or list(benchmark.BACKBONES)
        device = torch.cuda.get_device_name() if args.device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
        machine = f"{device}, PyTorch {torch.__version__}, fp32, {args.rounds} interleaved rounds"
        rows = functions.get(suite, benchmark.benchmark_networks)(args.rounds, args.device, **options)
        measured = dict(machine=machine, commit=benchmark.describe_commit(), rows=rows)
        (args.out / f"{suite}_{args.device}.json").write_text(json.dumps(measured, indent=1) + "\n")
        print(benchmark.to_markdown(suite, rows))


if __name__ == "__main__":
    cli.run(main, parse_args())
