"""Export a model with its results to ONNX: ``mmlisa export CONFIG CHECKPOINT OUT.onnx``."""

import argparse
from pathlib import Path

from mmlisa import cli
from mmlisa.errors import UserError

LEAST = 32  # pixels per side that the backbones take


def parser() -> argparse.ArgumentParser:
    arguments = cli.build_parser(__doc__, "export")
    add = arguments.add_argument
    cli.add_shared(arguments, "config", "--cfg-options")
    add("checkpoint", type=checkpoint_or_none, help="checkpoint file, or 'none' for random weights")
    add("out", type=Path, help="the .onnx file to write (opset 18)")
    add(
        "--size",
        type=cli.positive_int,
        nargs="+",
        metavar="N",
        help="H W of the images, or T H W of clips (default: that of the test pipeline; free if the pipeline keeps the ratio; "
        "with --raw 224 224, or the clips of the backbone)",
    )
    add("--dynamic", action="store_true", help="leave H and W free; --size is the example")
    add("--raw", action="store_true", help="write the maps of the head instead of the results")
    add("--uint8", action="store_true", help="input has integers from 0 to 255: normalise in the file")
    cli.add_shared(arguments, "--may-differ")
    return arguments


def checkpoint_or_none(text: str) -> str | None:
    """Type of a checkpoint; None for random weights."""
    return None if text == "none" else cli.weights_source(text)


def main(args: argparse.Namespace) -> None:
    if args.out.suffix != ".onnx":
        raise UserError(f"out: '{args.out}' does not end in .onnx")
    if args.size and (len(args.size) not in (2, 3) or min(args.size[-2:]) < LEAST):
        raise UserError(f"--size: H and W of at least {LEAST} are needed, or T H W of clips")
    if args.uint8 and args.raw:
        raise UserError("--uint8: the file must have results; leave out --raw")
    from mmlisa.training.config import build_model, import_quietly, load_config, parse_options

    whole = load_config(args.config, options=parse_options(args.cfg_options))
    if not args.verbose:
        import_quietly(whole.get("default_scope"))
    from mmlisa import export
    from mmlisa.checkpoints import load_weights, saved_metainfo, use_safe_loader
    from mmlisa.inference.tiled import plain_config
    from mmlisa.training.inputs import warn_of_inputs

    use_safe_loader()
    cfg, tiles = plain_config(whole)
    model = build_model(cfg)
    # A model that cannot be exported is reported before the checkpoint is read.
    if args.raw:
        clips = getattr(model.backbone, "image_size", ())
        module, fixed = export.Exportable(model), clips if len(clips) == 3 else (224, 224)
    else:
        module = export.EndToEnd(model, args.uint8)
        fixed = export.final_size(cfg, module)
        if module.task == "classification" and fixed and not args.dynamic and tuple(args.size or fixed) != fixed:
            raise UserError(
                f"--size {' '.join(map(str, args.size))}: the test pipeline of this classifier gives images of "
                f"{fixed[0]}x{fixed[1]}; leave --size out, or change the pipeline with --cfg-options"
            )
    metainfo = {}
    if args.checkpoint:
        loaded = load_weights(model, args.checkpoint, args.may_differ)
        metainfo = saved_metainfo(loaded)
        warn_of_inputs(loaded, whole, args.checkpoint)
    metadata = None if args.raw else export.describe(cfg, module, metainfo, **tiles)
    if args.dynamic and 3 in (len(args.size or ()), len(fixed or ())):
        raise UserError("--dynamic: clips have a fixed size; leave it out")
    size = args.size or (export.EXAMPLE if args.dynamic else fixed) or export.EXAMPLE
    dynamic = args.dynamic or not (args.size or fixed)
    sentence, inputs = "", []
    if metadata:
        sentence, inputs = export.compare_with_library(cfg, module, metadata, None if dynamic else size)
    # The first picture is one of the recipe's own size; both would take twice as long.
    differences = export.write(module, args.out, size, dynamic=dynamic, metadata=metadata, inputs=inputs[:1])
    shape = "free" if dynamic else "x".join(map(str, size))
    print(f"{args.out}: {args.out.stat().st_size / 2**20:.1f} MiB; size {shape}")
    for each, difference in differences.items():
        print(f"{'x'.join(map(str, each))}: differs from PyTorch by {difference:.1e} of the usual values")
    if sentence:
        print(sentence)
    if metadata and module.task in ("detection", "segmentation") and not dynamic and tuple(size) != fixed:
        mean, largest = export.padding_effect(module, size)
        print(
            f"images below {shape} are padded: of a random one of half the height, the padding changes the maps of the network "
            f"by {mean:.1%} of their range on average, by {largest:.1%} at most"
        )
