"""Measure operators, their scaling, backbones and detectors, in inference and in training, and write JSON, Markdown and plots.

``--tune`` measures on which sizes each backend of LiSA is the fastest, and writes nothing. ``--proof`` measures in ten minutes
what only a GPU can show: finiteness in half precision, crossing points with softmax, thresholds, compiled and graphed networks.
"""

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from mmlisa import cli

SUITES = (
    "operators",
    "scaling",
    "backbones",
    "pixels",
    "compile",
    "detectors",
    "training",
    "training-detectors",
    "profile",
)
FORMS = "forms"  # LiSA in an exported file
DEPLOY = "deploy"  # needs more packages, and continues where it was stopped


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.build_parser(__doc__)
    parser.add_argument(
        "--suite",
        nargs="+",
        choices=(*SUITES, FORMS, DEPLOY),
        default=SUITES,
        help="what to measure (default: all but forms and deploy)",
    )
    parser.add_argument("--models", nargs="+", metavar="NAME", help="backbones (default: all)")
    parser.add_argument("--size", nargs="+", type=_size, help="image sizes of backbones and detectors, as 800x1344")
    parser.add_argument(
        "--batch", type=int, default=1, help="images per batch of backbones and in training (default: %(default)s)"
    )
    parser.add_argument("--amp", action="store_true", help="the training suites under autocast")
    parser.add_argument("--with-cp", action="store_true", help="the training suites with recomputed blocks")
    parser.add_argument("--rounds", type=int, default=7, help="samples of each candidate (default: %(default)s)")
    parser.add_argument("--no-compile", action="store_true", help="the deploy suite without torch.compile")
    parser.add_argument("--threads", type=int, help="CPU threads (default: PyTorch's; 1 and 2 in deploy)")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument(
        "--tune",
        action="store_true",
        help="measure LiSA's backends and print the thresholds for mmlisa/ops/lisa/dispatch.py",
    )
    parser.add_argument(
        "--proof",
        action="store_true",
        help="proof_DEVICE.json and .md in --out; on a CPU only a dry run of every section",
    )
    parser.add_argument("--redraw", action="store_true", help="draw the JSON files of --out again, and measure nothing")
    parser.add_argument("--out", type=Path, default=Path("docs/benchmarks"), help="folder (default: %(default)s)")
    return parser.parse_args(argv)


def _size(text: str) -> tuple[int, int]:
    height, width = text.split("x")
    return int(height), int(width)


def main(args: argparse.Namespace) -> None:
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # PyTorch's profiler prints two lines whenever it measures memory
    import torch

    from research import benchmark
    from research import deploy_benchmark as deploy
    from research.environment import describe_environment

    if args.redraw:
        files = [
            file for file in sorted(args.out.glob(f"*_{args.device}.json")) if file.stem.split("_")[0] in args.suite
        ]
        if not files:
            raise FileNotFoundError(f"{args.out} has no measurements of {', '.join(args.suite)}: measure first")
        for file in files:
            draw(file)
        return
    if DEPLOY in args.suite:
        if len(args.suite) > 1:
            raise ValueError("--suite deploy runs alone")
        if unknown := set(args.models or ()) - deploy.NETWORKS.keys():
            raise ValueError(f"--models {', '.join(sorted(unknown))}: the networks are {', '.join(deploy.NETWORKS)}")
        threads, names = [args.threads] if args.threads else [1, 2], args.models or list(deploy.NETWORKS)
        out, compiled = args.out / "deploy.json", not args.no_compile
        print(deploy.run(names, args.size, threads, args.rounds, out, compiled=compiled))
        return
    if unknown := set(args.models or ()) - benchmark.BACKBONES.keys():
        raise ValueError(f"--models {', '.join(sorted(unknown))}: the backbones are {', '.join(benchmark.BACKBONES)}")
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    if args.tune:
        rows = benchmark.measure_backends(args.rounds, args.device)
        for row in rows:
            print(
                f"# {row['side']:6} {row['case']:20} size {row['size']:6.1f} {row['name']:9} {row['seconds'] * 1e3:8.3f} ms"
            )
        print(f'    "{args.device}": {benchmark.tune(rows)},')
        return
    if args.proof:
        write_proof(args)
        return
    models = args.models or list(benchmark.BACKBONES)
    machine = benchmark.measure_machine(args.device)
    common = (args.rounds, args.device)
    suites = {
        "operators": lambda: benchmark.benchmark_operators(*common, machine),
        "scaling": lambda: benchmark.benchmark_scaling(*common),
        "backbones": lambda: benchmark.benchmark_backbones(
            *common, models, args.size or benchmark.IMAGE_SIZES, args.batch
        ),
        "pixels": lambda: benchmark.benchmark_backbones(*common, models, benchmark.SQUARES),
        "compile": lambda: benchmark.benchmark_compile(
            *common, models, args.size or benchmark.IMAGE_SIZES[:1], args.batch
        ),
        "detectors": lambda: benchmark.benchmark_detectors(*common, models, args.size or ((800, 1344),)),
        "profile": lambda: benchmark.benchmark_profile(
            *common, models, args.size or benchmark.TRAINING_SIZES[1:2], args.batch
        ),
        "training": lambda: train(whole=False),
        "training-detectors": lambda: train(whole=True),
        FORMS: lambda: deploy.benchmark_forms(args.rounds),
    }

    def train(whole: bool) -> list[benchmark.Row]:
        sizes = args.size or benchmark.TRAINING_SIZES
        options = dict(whole=whole, amp=args.amp, with_cp=args.with_cp)
        return benchmark.benchmark_training(*common, models, sizes, args.batch, **options)

    args.out.mkdir(parents=True, exist_ok=True)
    environment = describe_environment()  # before the code is edited further
    for suite in args.suite:
        rows = suites[suite]()
        is_training = suite.startswith("training")
        precision = "" if is_training else ", fp32"
        variant = "_amp" * args.amp + "_cp" * args.with_cp if is_training else ""
        stem = args.out / f"{suite}{variant}_{args.device}"
        stem.with_suffix(".json").write_text(
            json.dumps(dict(machine=asdict(machine), **environment, rows=rows), indent=1) + "\n"
        )
        text = benchmark.to_markdown(suite.capitalize(), rows) + (
            f"\n{machine.device}, {machine.threads} threads, PyTorch {machine.torch_version}{precision}; peaks: "
            f"{machine.flops / 1e9:.0f} GFLOP/s (matrix product), {machine.bandwidth / 1e9:.1f} GB/s (copy). "
            f"{args.rounds} interleaved rounds.\n\n`{environment['command']}`, at commit {environment['commit']}.\n"
        )
        stem.with_suffix(".md").write_text(text)
        print(text)
        draw(stem.with_suffix(".json"))


def write_proof(args: argparse.Namespace) -> None:
    """Write ``proof_<device>.json`` and the page ``proof_<device>.md``."""
    import torch

    from research import benchmark, proof
    from research.environment import describe_environment

    if args.device == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            "--device cuda: PyTorch finds no GPU on this machine; leave the option out for a dry run on the CPU"
        )
    stamp = dict(device=torch.cuda.get_device_name() if args.device == "cuda" else "CPU (dry run)")
    stamp |= dict(torch=torch.__version__, **describe_environment())
    sections, cut = proof.prove(proof.Scope() if args.device == "cuda" else proof.DRY_RUN, args.device)
    page = [f"# Proof on {stamp['device']}\n"]
    page += [benchmark.to_markdown(name.capitalize(), rows) for name, rows in sections.items() if rows]
    if sections["thresholds"]:
        page.append(
            f'Line for `mmlisa/ops/lisa/dispatch.py`: `"{args.device}": {benchmark.tune(sections["thresholds"])},`\n'
        )
    if cut:
        page.append(f"Cut short after their share of ten minutes: {', '.join(cut)}.\n")
    page.append(f"PyTorch {stamp['torch']}, commit {stamp['commit']}, `{stamp['command']}`.\n")
    args.out.mkdir(parents=True, exist_ok=True)
    file = args.out / f"proof_{args.device}.json"
    file.write_text(json.dumps(dict(**stamp, cut=cut, sections=sections), indent=1) + "\n")
    file.with_suffix(".md").write_text("\n".join(page))
    print(f"wrote {file} and {file.with_suffix('.md')}")


def draw(file: Path) -> None:
    """Draw the plots of a suite from its JSON file: ``<suite>[_<variant>]_<device>.json``."""
    from research.benchmark_plots import plot_accuracy_over_runtime, plot_suite

    rows, (suite, *_) = json.loads(file.read_text())["rows"], file.stem.split("_")
    if suite == FORMS:  # a table says it all
        return
    plot_suite(suite, rows, file.with_suffix(".png"))
    if suite == "backbones":
        plot_accuracy_over_runtime(
            rows, file.with_name(file.name.replace("backbones", "accuracy_over_runtime")).with_suffix(".png")
        )


if __name__ == "__main__":
    cli.run(main, parse_args())
