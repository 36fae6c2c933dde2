"""Train a detector, segmentor or classifier: ``mmlisa train CONFIG``."""

import argparse
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mmlisa import cli


def parser() -> argparse.ArgumentParser:
    arguments = cli.build_parser(__doc__, "train")
    add = arguments.add_argument
    cli.add_shared(arguments, "config", "--cfg-options")
    add("--work-dir", help="where logs and checkpoints go (default: work_dirs/<config's name>)")
    add("--amp", action="store_true", help="automatic mixed precision, on a CPU in bfloat16")
    add(
        "--resume",
        type=cli.weights_source,
        nargs="?",
        const=True,  # argparse would pass a string through `type`
        metavar="CHECKPOINT",
        help="continue from this checkpoint, or from the newest of the work dir",
    )
    add("--pretrained", metavar="SOURCE", help="weights to start from: a file, an address or timm:NAME")
    add("--ema", action=argparse.BooleanOptionalAction, help="with --pretrained: averaged weights, or the others")
    length = arguments.add_mutually_exclusive_group()
    text = "length of a training that is counted in {}; stretches the schedule"
    length.add_argument("--epochs", type=cli.positive_int, metavar="N", help=text.format("epochs"))
    length.add_argument("--iters", type=cli.positive_int, metavar="N", help=text.format("iterations"))
    add("--batch", type=cli.positive_int, metavar="N", help="images a step and process")
    add("--auto-scale-lr", action="store_true", help="scale the learning rate with the total batch")
    cli.add_shared(arguments, "--launcher", "--local_rank --local-rank")
    cli.add_shared(arguments, "--may-differ")
    return arguments


def main(args: argparse.Namespace) -> None:
    from mmlisa.training import config

    options = config.parse_options(args.cfg_options)
    cfg = config.load_config(args.config, options=options, work_dir=args.work_dir, launcher=args.launcher)
    names = "pretrained", "ema", "batch", "epochs", "iters", "auto_scale_lr", "amp", "resume"
    start(cfg, args, may_differ=args.may_differ, **{name: getattr(args, name) for name in names})


def start(cfg: Any, args: argparse.Namespace, *, may_differ: Sequence[str] = (), **options: Any) -> None:
    """Train by a config, as :func:`load_config` returns it, with ``options`` of :func:`config_for_training`."""
    os.environ.setdefault("LOCAL_RANK", str(args.local_rank))
    from mmlisa.training import config

    if os.environ["LOCAL_RANK"] == "0":  # before the imports of seconds
        print(f"{Path(cfg.filename).stem}: the results go into {cfg.work_dir}/", flush=True)
    config.check_data(cfg, "train", "val")
    config.check_mixing(cfg)
    cfg = config.config_for_training(cfg, **options)

    from mmlisa.checkpoints import use_safe_loader
    from mmlisa.data.checking import look_at_class_maps, look_at_splits
    from mmlisa.training.runner import build_runner, train

    use_safe_loader()
    runner = build_runner(cfg, may_differ=may_differ, verbose=args.verbose)
    for line in look_at_class_maps(cfg):
        runner.logger.info(line)
    for warning in (
        *look_at_splits(cfg),
        config.warn_of_random_backbone(cfg),
        config.warn_of_batch(cfg, runner.world_size),
    ):
        if warning:
            runner.logger.warning(warning)
    train(runner)
    if runner.rank == 0:
        report(runner)


def report(runner: Any) -> None:
    """Print where a finished training wrote its results, and the next commands, with the config that MMEngine wrote."""
    from mmlisa.training.config import type_name

    folder, info = f"{os.getcwd()}/", runner.message_hub.runtime_info
    checkpoint = (info.get("best_ckpt") or info.get("last_ckpt") or "").removeprefix(folder)
    print(f"\nTrained for {runner.iter} iterations.\n  log         {runner.log_dir.removeprefix(folder)}/")
    if not checkpoint:
        return
    score = f" (best: {info['best_score']:.4g})" if "best_ckpt" in info else ""
    print(f"  checkpoint  {checkpoint}{score}\nNext:")
    if type_name(runner.cfg.model) == "Adaptation":  # a backbone, which is not tested
        name = runner.cfg.model.backbone.attention.type
        print(f"  mmlisa train CONFIG --pretrained {checkpoint}, where model.backbone.attention=dict(type='{name}', …)")
        return
    config = str(Path(runner.work_dir, Path(runner.cfg.filename).name)).removeprefix(folder)
    words = shlex.join([config, checkpoint])
    print(f"  mmlisa test {words}\n  mmlisa infer {words} IMAGE …")
