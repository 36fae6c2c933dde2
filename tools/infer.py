"""Draw a model's predictions on images and videos: ``mmlisa infer CONFIG CHECKPOINT IMAGE …``."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from mmlisa import cli


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.build_parser(__doc__)
    parser.add_argument(
        "files",
        nargs="+",
        metavar="CONFIG CHECKPOINT IMAGE | EXPORTED.onnx IMAGE",
        help="config and checkpoint, or an .onnx file of `mmlisa export`; then images, videos, or folders of them. A video "
        "classifier also takes a folder of a video's frames",
    )
    parser.add_argument("--out-dir", type=Path, default="work_dirs/infer", help="for pictures (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the predictions as data (docs/pictures.md)")
    parser.add_argument("--score-thr", type=cli.share, default=0.3, help="lowest score kept (default: %(default)s)")
    parser.add_argument("--tile", type=cli.count, metavar="PIXELS", help="detect on tiles of this size")
    parser.add_argument("--overlap", type=cli.share, default=0.2, help="repeated share of tiles (default: %(default)s)")
    cli.add_shared(parser, "--cfg-options", "--device", "--backend", "--min-matched")
    args = parser.parse_intermixed_args(argv)
    exported = args.files[0].endswith(".onnx")
    if len(args.files) < (2 if exported else 3):
        parser.error("IMAGE is missing: give CONFIG CHECKPOINT IMAGE, or EXPORTED.onnx IMAGE")
    try:
        args.config = None if exported else cli.config(args.files.pop(0))
        args.checkpoint, *args.images = cli.checkpoint(args.files[0]), *map(cli.existing_path, args.files[1:])
    except argparse.ArgumentTypeError as error:
        parser.error(str(error))
    if exported and (args.cfg_options or args.device == "cuda"):
        parser.error("--device and --cfg-options: an exported file has no config and runs on the CPU; leave them out")
    return args


def main(args: argparse.Namespace) -> None:
    from tqdm import tqdm

    from mmlisa.training.config import load_config, parse_options
    from mmlisa.training.log import import_quietly

    cfg = load_config(args.config, options=parse_options(args.cfg_options)) if args.config else None
    if not args.verbose:
        import_quietly(cfg and cfg.get("default_scope"))
    from mmlisa import runtime
    from mmlisa.checkpoints import use_safe_loader
    from mmlisa.inference.pictures import predict_pictures
    from mmlisa.inference.predictor import Predictor
    from mmlisa.inference.tiled import tile_config

    use_safe_loader()
    options = dict(tile=args.tile, overlap=args.overlap) if args.tile and cfg is None else {}
    if cfg is None:
        model = runtime.load(args.checkpoint, backend=args.backend)
    else:
        cfg = tile_config(cfg, args.tile, args.overlap) if args.tile else cfg
        model = Predictor(cfg, args.checkpoint, device=args.device, min_matched=args.min_matched)
    done, failed = [], []
    for prediction in predict_pictures(model, args.images, args.out_dir, args.score_thr, **options):
        if prediction.target is None:
            failed.append(prediction.summary)
        else:
            tqdm.write(f"{prediction.source} -> {prediction.target}: {prediction.summary}")
            result = prediction.result  # a video has a list with an entry per frame
            entry = {"frames": result} if isinstance(result, list) else result
            done.append({"source": str(prediction.source), **entry})
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(done, indent=1) + "\n")
    if failed:
        print(f"error: {len(failed)} of the inputs could not be read:", *failed, sep="\n  ", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    cli.run(main, parse_args())
