"""Draw a model's predictions on images and videos: ``python tools/infer.py CONFIG CHECKPOINT IMAGE …``."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from mmlisa import cli


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.build_parser(__doc__)
    parser.add_argument(
        "config", help="config file, or the name of a config that ships with mmlisa; left out before an exported file"
    )
    parser.add_argument("checkpoint", help="checkpoint file, or an .onnx file of `mmlisa export`, without a config")
    parser.add_argument(
        "images",
        nargs="*",
        metavar="IMAGE",
        help="image or video files, or folders of them; a video classifier also takes a folder of a video's frames",
    )
    parser.add_argument(
        "--out-dir", type=Path, default="work_dirs/infer", help="where the pictures go (default: %(default)s)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the predictions as data (docs/pictures.md)")
    parser.add_argument(
        "--score-thr", type=float, default=0.3, help="objects below this score are left out (default: 0.3)"
    )
    parser.add_argument(
        "--tile", type=int, metavar="PIXELS", help="detect on tiles of this size instead of the whole image"
    )
    parser.add_argument(
        "--overlap", type=float, default=0.2, help="share of a tile that the next repeats (default: 0.2)"
    )
    parser.add_argument("--device", default=None, help="cpu, cuda:0, … (default: a GPU where there is one)")
    parser.add_argument("--min-matched", type=float, default=0.9, help="share of the model the checkpoint must hold")
    cli.add_config_options(parser)
    args = parser.parse_intermixed_args(argv)
    if args.config.endswith(".onnx"):
        args.config, args.checkpoint, args.images = None, args.config, [args.checkpoint, *args.images]
        if args.cfg_options or args.device not in (None, "cpu"):
            parser.error(
                "--device and --cfg-options: an exported file has no config and runs on the CPU; leave them out"
            )
    elif args.checkpoint.endswith(".onnx"):
        parser.error(f"CHECKPOINT '{args.checkpoint}' is an exported file, which needs no config: leave CONFIG out")
    if (args.tile is not None and args.tile < 32) or not 0 <= args.overlap < 1:
        parser.error(
            f"--tile {args.tile} --overlap {args.overlap}: tiles have at least 32 pixels and overlap by 0 to 1"
        )
    if not args.images:
        parser.error("no IMAGE: give CONFIG CHECKPOINT IMAGE, or EXPORTED.onnx IMAGE")
    return args


def main(args: argparse.Namespace) -> None:
    if args.config is None:
        from mmlisa import deploy

        deploy.load(args.checkpoint)  # another file than an exported one is reported before PyTorch is imported
    from mmlisa.training.config import load_config, parse_options

    cfg = load_config(args.config, options=parse_options(args.cfg_options)) if args.config else None

    from tqdm import tqdm

    from mmlisa.training.log import import_quietly

    if not args.verbose:
        import_quietly(cfg and cfg.get("default_scope"))
    from mmlisa.checkpoints import use_safe_loader
    from mmlisa.deploy.inference import predict_pictures

    use_safe_loader()
    predictions = predict_pictures(
        cfg,
        args.checkpoint,
        args.images,
        args.out_dir,
        score_threshold=args.score_thr,
        device=args.device,
        min_matched=args.min_matched,
        tile=args.tile,
        overlap=args.overlap,
    )
    done, failed = [], []
    try:
        for prediction in predictions:
            if prediction.target is None:
                failed.append(prediction.summary)
            else:
                tqdm.write(f"{prediction.source} -> {prediction.target}: {prediction.summary}")
                done.append({"source": str(prediction.source), **_entry(prediction.result)})
    finally:
        if args.json and (done or failed):  # also of the inputs before Ctrl-C
            args.json.parent.mkdir(parents=True, exist_ok=True)
            args.json.write_text(json.dumps(done, indent=1) + "\n")
    if failed:
        print(f"error: {len(failed)} of the inputs could not be read:", *failed, sep="\n  ", file=sys.stderr)
        sys.exit(1)


def _entry(result: dict | list) -> dict:
    """Return the entry of an input in the JSON file; the entry of a video has a list of frames."""
    return {"frames": result} if isinstance(result, list) else result


if __name__ == "__main__":
    cli.run(main, parse_args())
