"""Teach a backbone with another attention its own features, from images without labels: ``mmlisa adapt MODEL IMAGES``."""

import argparse
import ast
from pathlib import Path

from mmlisa import cli
from mmlisa.errors import UserError

MODELS = ("dinov2-s", "dinov3-s")


def parser() -> argparse.ArgumentParser:
    arguments = cli.build_parser(__doc__, "adapt")
    add = arguments.add_argument
    text = f"the teacher: {' or '.join(MODELS)}, or a config with a backbone of softmax attention"
    add("model", type=model, metavar="MODEL", help=text)
    add("images", type=cli.existing_path, metavar="IMAGES", help="folder of images, searched with all folders below")
    text = "the student's operator: LinearAngularAttention, or with options dict(type='FocusedLinearAttention', …)"
    add("--attention", type=attention, required=True, metavar="TYPE", help=text)
    text = "of the teacher: timm:NAME, a file of published weights, or a checkpoint (default: those that the model starts from)"
    add("--weights", type=cli.weights_source, metavar="SOURCE", help=text)
    text = "side of the crops in pixels; take the size at which the backbone is used (default: %(default)s)"
    add("--size", type=cli.positive_int, default=224, metavar="S", help=text)
    add("--iters", type=cli.positive_int, default=2000, metavar="N", help="default: %(default)s")
    add("--batch", type=cli.positive_int, metavar="N", help="images a step and process (default: 4)")
    add("--amp", action="store_true", help="automatic mixed precision, on a CPU in bfloat16")
    add("--work-dir", help="where logs and checkpoints go (default: work_dirs/adapt)", default="work_dirs/adapt")
    add("--resume", action="store_true", help="continue from the newest checkpoint of the work dir")
    cli.add_shared(arguments, "--launcher", "--local_rank --local-rank")
    return arguments


def model(text: str) -> str:
    """Parse the name of a model, or a config."""
    return text if text in MODELS else cli.config_file(text)


def attention(text: str) -> dict[str, object]:
    """Parse the type of an operator, or ``dict(type=…)`` with literals as options."""
    if text.isidentifier():
        return {"type": text}
    try:
        call = ast.parse(text, mode="eval").body
        if call.func.id != "dict" or call.args:
            raise ValueError
        config = {entry.arg: ast.literal_eval(entry.value) for entry in call.keywords}
    except (SyntaxError, ValueError, AttributeError):
        config = {}
    if not isinstance(config.get("type"), str):
        raise argparse.ArgumentTypeError(f"{text!r} is neither a type nor dict(type='…', …)")
    return config


def main(args: argparse.Namespace) -> None:
    from mmlisa.commands.train import start
    from mmlisa.training.adapting import adaptation_config

    if not Path(args.images).is_dir():
        raise UserError(f"IMAGES: '{args.images}' is not a folder")
    options = {name: getattr(args, name) for name in ("weights", "size", "iters", "work_dir")}
    cfg = adaptation_config(args.model, args.images, args.attention, **options)
    cfg.launcher = args.launcher
    start(cfg, args, iters=args.iters, batch=args.batch, amp=args.amp, resume=args.resume)
