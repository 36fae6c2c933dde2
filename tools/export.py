"""Export a model with its results to ONNX or torch.export: ``python tools/export.py CONFIG CHECKPOINT OUT.onnx``."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from mmlisa import cli, options

LEAST = 32  # pixels per side that the backbones take


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.build_parser(__doc__)
    parser.add_argument("config", help="config file, or the name of a config that ships with mmlisa")
    parser.add_argument("checkpoint", help="checkpoint file, or 'none' for random weights")
    parser.add_argument("out", type=Path, help="file to write: .onnx (opset 18) or .pt2 (torch.export)")
    parser.add_argument(
        "--size",
        type=int,
        nargs="+",
        metavar="N",
        help="H W of the images, or T H W of clips (default: that of the test pipeline; free if the pipeline keeps the ratio; "
        "with --raw and --backbone-only 224 224, or the clips of the backbone)",
    )
    parser.add_argument("--dynamic", action="store_true", help="leave H and W free; --size is the example")
    parser.add_argument("--raw", action="store_true", help="write the maps of the head instead of the results")
    parser.add_argument("--backbone-only", action="store_true", help="write the maps of the backbone")
    parser.add_argument(
        "--uint8", action="store_true", help="the input has integers from 0 to 255: normalise in the file"
    )
    parser.add_argument(
        "--int8",
        type=Path,
        metavar="FOLDER",
        help="also write OUT_int8.onnx, calibrated on the images of a folder, and measure both on the test data",
    )
    parser.add_argument("--min-matched", type=float, default=0.9, help="share of the model the checkpoint must hold")
    parser.add_argument(
        "--tolerance", type=float, default=1e-3, help="largest relative difference (default: %(default)s)"
    )
    cli.add_config_options(parser)
    args = parser.parse_args(argv)
    try:
        options.check_exported("OUT", args.out)
    except ValueError as error:
        parser.error(str(error))
    if args.size and (len(args.size) not in (2, 3) or min(args.size[-2:]) < LEAST):
        parser.error(
            f"--size {' '.join(map(str, args.size))}: H and W of at least {LEAST} are needed, or T H W of clips"
        )
    if args.dynamic and args.size and len(args.size) == 3:
        parser.error(f"--dynamic --size {' '.join(map(str, args.size))}: clips have a fixed size; leave out --dynamic")
    if args.int8 and (args.raw or args.backbone_only or args.out.suffix != ".onnx"):
        parser.error("--int8 needs an .onnx file with results: leave out --raw and --backbone-only")
    if args.uint8 and (args.raw or args.backbone_only):
        parser.error("--uint8 needs a file with results: leave out --raw and --backbone-only")
    if args.int8:
        from mmlisa.deploy.quantise import find_images  # imports neither PyTorch nor onnxruntime

        try:
            find_images(args.int8)
        except (OSError, ValueError) as error:
            parser.error(str(error))
    return args


_LOWER = "export with a lower score_thr in the model's test_cfg to compare (--cfg-options)"


def main(args: argparse.Namespace) -> None:
    from mmlisa.training.config import load_config, parse_options

    cfg = load_config(args.config, options=parse_options(args.cfg_options))

    from mmlisa.training.log import import_quietly

    if not args.verbose:
        import_quietly(cfg.get("default_scope"))
    from mmlisa.checkpoints import load_weights, use_safe_loader
    from mmlisa.deploy import export
    from mmlisa.deploy.results import Prepare, Results, WithResults
    from mmlisa.training.building import build_model
    from mmlisa.training.checks import check_shapes, saved_metainfo

    use_safe_loader()
    model = build_model(cfg)
    # A model that cannot be exported is reported before the checkpoint is read.
    if args.raw or args.backbone_only:
        own = getattr(model.backbone, "image_size", ())
        module, fixed = export.Exportable(model, args.backbone_only), own if len(own) == 3 else (224, 224)
    else:
        module = WithResults(Prepare(model, args.uint8), Results(model))
        fixed = export.final_size(cfg, module[1])
        one_size = module[1].task == "classification" and fixed and not args.dynamic  # padding would change its mean
        if one_size and tuple(args.size or fixed) != fixed:
            raise ValueError(
                f"--size {' '.join(map(str, args.size))}: the test pipeline of this classifier gives images of "
                f"{fixed[0]}x{fixed[1]}; change its steps in the config, or leave --size out"
            )
    metainfo = {}
    if args.checkpoint != "none":
        loaded = load_weights(model, args.checkpoint, args.min_matched)
        check_shapes(model, loaded, args.checkpoint)
        metainfo = saved_metainfo(loaded)
    metadata = export.describe(cfg, module, metainfo) if isinstance(module, WithResults) else None
    if args.dynamic and len(fixed or ()) == 3:
        raise ValueError("--dynamic: clips have a fixed size; leave it out")
    if args.int8 and metadata and module[1].task == "video":
        raise ValueError("--int8: a video classifier cannot be calibrated on images; leave it out")
    size = args.size or (export.EXAMPLE if args.dynamic else fixed) or export.EXAMPLE
    dynamic = args.dynamic or not (args.size or fixed)
    start = perf_counter()
    sizes = [tuple(size)]
    if dynamic:
        height, width = size
        sizes += [(height + 32, width), (height, width + 64), (96, 96), (224, 224), (336, 96)]
        if args.out.suffix == ".onnx":  # a .pt2 program takes multiples of the size divisor only
            sizes.append((101, 203))
    # A file that turns out to differ from the model replaces no other.
    partial = args.out.with_name(f".{args.out.stem}.partial{args.out.suffix}")
    try:
        export.export(module, partial, size, dynamic=dynamic, metadata=metadata)
        shape = "free" if dynamic else "x".join(map(str, size))
        if metadata and not (dynamic or args.size):
            shape += " of the " + ("backbone" if len(size) == 3 else "test pipeline, free with --dynamic")
        task = module[1].task if metadata else None
        batch = {None: "1", "detection": "1, because the number of boxes differs between images"}.get(task, "free")
        print(f"{args.out}: {partial.stat().st_size / 2**20:.1f} MiB in {perf_counter() - start:.0f} s")
        print(f"size: {shape}; batch: {batch}")
        _compare(module, partial, args, sizes)
        partial.replace(args.out)
    finally:
        partial.unlink(missing_ok=True)
    if args.int8:
        from mmlisa.deploy.quantise import compare, find_images, quantise, to_markdown

        target = quantise(args.out, args.int8)
        print(f"{target}: {target.stat().st_size / 2**20:.1f} MiB")
        try:
            print(to_markdown(compare(cfg, {"fp32": args.out, "int8": target}, find_images(args.int8)[0])))
        except FileNotFoundError as error:
            print(f"the loss of int8 was not measured: {error}")


def _compare(module: Any, file: Path, args: argparse.Namespace, sizes: Sequence[tuple[int, ...]]) -> None:
    """Compare a written file with the model on a random image of each size.

    Raises:
        ValueError: they differ.
    """
    from mmlisa.deploy.export import largest_difference

    tolerance = args.tolerance
    for size in sizes:
        difference, shape = largest_difference(module, file, size), "x".join(map(str, size))
        if difference is None:
            print(f"{shape}: nothing compared, as nothing is detected in a random image; {_LOWER}")
            continue
        print(f"{shape}: differs from PyTorch by {difference:.1e} of the largest output")
        if not difference <= tolerance:  # also NaN
            raise ValueError(
                f"{args.out} differs from the model by {difference:.1e}, more than {tolerance:.1e}; it was not written"
            )
        # Other sizes must be about as close as the example: a window or table of its size would show here.
        tolerance = min(tolerance, max(10 * difference, 1e-5))


if __name__ == "__main__":
    cli.run(main, parse_args())
