"""Train a detector, segmentor or classifier: ``python tools/train.py CONFIG``."""

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mmlisa import cli
from mmlisa.options import select_device, set_local_rank


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.build_parser(__doc__)
    parser.add_argument("config", help="config file, or the name of a config that ships with mmlisa")
    parser.add_argument("--work-dir", help="where logs and checkpoints go (default: work_dirs/<config's name>)")
    parser.add_argument("--amp", action="store_true", help="automatic mixed precision, on a GPU")
    parser.add_argument(
        "--resume",
        nargs="?",
        const="auto",
        metavar="CHECKPOINT",
        help="continue from this checkpoint, or from the newest of the work dir",
    )
    parser.add_argument(
        "--pretrained", metavar="SOURCE", help="weights of the backbone: a checkpoint, an address or timm:NAME"
    )
    parser.add_argument(
        "--epochs", type=int, metavar="N", help="passes over the images; the schedule is stretched to them"
    )
    parser.add_argument("--batch", type=int, metavar="N", help="images a step and process")
    parser.add_argument("--device", help="cpu, cuda or cuda:1 (default: a GPU where there is one)")
    parser.add_argument(
        "--auto-scale-lr", action="store_true", help="scale the learning rate with the total batch size"
    )
    parser.add_argument(
        "--min-matched", type=float, default=0.5, help="share of the model a load_from checkpoint must hold"
    )
    cli.add_config_options(parser)
    cli.add_launcher(parser)
    args = parser.parse_args(argv)
    if args.launcher != "none" and ":" in (args.device or ""):
        parser.error(
            f"--device {args.device}: each process of a launcher trains on a GPU of its own; name the GPUs in "
            "CUDA_VISIBLE_DEVICES, and leave the number out"
        )
    return args


def main(args: argparse.Namespace) -> None:
    set_local_rank(args.launcher, args.local_rank)
    # Each process of a launcher takes the GPU of its rank, and must see all of them.
    if args.device == "cpu" or (args.device and args.launcher == "none"):
        select_device(args.device)
    from mmlisa.training import config
    from mmlisa.training.config import check_data

    options = config.parse_options(args.cfg_options)
    cfg = config.load_config(args.config, options=options, work_dir=args.work_dir, launcher=args.launcher)
    if args.batch:
        cfg.train_dataloader.batch_size = args.batch
    if args.pretrained:
        config.set_pretrained(cfg, args.pretrained)
    if args.epochs:
        config.set_epochs(cfg, args.epochs)
    if args.auto_scale_lr:
        config.set_auto_scale_lr(cfg)
    check_data(cfg, "train", "val")
    if args.device:
        config.check_default_device(args.device)
    if args.amp:
        config.set_amp(cfg)

    from mmlisa.checkpoints import use_safe_loader
    from mmlisa.training.runner import build_runner, set_resume, train

    use_safe_loader()
    if args.resume:
        set_resume(cfg, None if args.resume == "auto" else args.resume)
    elif cfg.get("resume") and cfg.get("load_from"):  # as MMEngine writes the config of a resumed run
        print(
            f"note: the config itself resumes from {cfg.load_from}; a new training needs --cfg-options resume=False "
            "load_from=None"
        )
    runner = build_runner(cfg, args.min_matched, verbose=args.verbose)
    if warning := config.warn_of_random_backbone(cfg):
        runner.logger.warning(warning)
    train(runner)
    report(runner, args)


def report(runner: Any, args: argparse.Namespace) -> None:
    """Print where a finished training wrote its results, and what to type next.

    If options changed the config, the next commands need the one that MMEngine wrote with them.
    """
    if runner.rank != 0:
        return
    info = runner.message_hub.runtime_info
    checkpoint = info.get("best_ckpt") or info.get("last_ckpt")
    lines = [f"\nTrained for {runner.iter} iterations."]
    if checkpoint:
        score = f" (best: {info['best_score']:.4g})" if "best_ckpt" in info else ""
        lines.append(f"  checkpoint  {_shown(checkpoint)}{score}")
    curves, pictures = Path(runner.log_dir) / "curves.png", Path(runner.log_dir) / "vis_data" / "vis_image"
    lines += [f"  curves      {_shown(curves)}"] * curves.is_file()
    lines += [f"  pictures    {_shown(pictures)}/"] * pictures.is_dir()
    lines.append(f"  log         {_shown(runner.log_dir)}/")
    if checkpoint:
        written = Path(runner.work_dir, Path(runner.cfg.filename).name)
        words = shlex.join([_shown(written) if args.cfg_options else args.config, _shown(checkpoint)])
        lines += ["Next:", f"  {cli.command('test')} {words}", f"  {cli.command('infer')} {words} IMAGE …"]
    print("\n".join(lines))


def _shown(path: str | Path) -> str:
    """Return a path relative to the current folder if it is inside it."""
    path = Path(path)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


if __name__ == "__main__":
    cli.run(main, parse_args(), may_spin=True)
