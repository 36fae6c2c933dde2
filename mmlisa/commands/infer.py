"""Draw a model's predictions on images and films: ``mmlisa infer CONFIG CHECKPOINT IMAGE …``."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from mmlisa import cli
from mmlisa.errors import UserError


def parser() -> argparse.ArgumentParser:
    arguments = cli.build_parser(__doc__, "infer")
    add = arguments.add_argument
    add(
        "files",
        nargs="+",
        metavar="CONFIG CHECKPOINT IMAGE | EXPORTED.onnx IMAGE",
        help="config and checkpoint, or an .onnx file of `mmlisa export`; then images, films, folders of both, the number of "
        "a camera or the address of a stream (for a video classifier, videos)",
    )
    add("--out-dir", type=Path, default="work_dirs/infer", help="folder for pictures and films (default: %(default)s)")
    add("--json", type=Path, metavar="FILE", help="write the predictions as data (docs/pictures.md)")
    text = "also write objects as annotations into OUT_DIR/annotations, for CVAT (COCO's form), LabelMe or YOLO"
    add("--format", choices=("coco", "cvat", "labelme", "yolo"), help=text)
    add("--score-thr", type=cli.fraction, default=0.3, help="lowest score kept (default: %(default)s)")
    add("--amp", action="store_true", help="half precision (docs/anywhere.md)")
    add("--every", type=cli.positive_int, default=1, metavar="N", help="take every Nth frame of a film")
    add("--track", action="store_true", help="number the objects through a film (needs the package trackers)")
    text = "replace a ViT's softmax attention, if that is faster on the first image (docs/takeover.md)"
    add("--attention", choices=["cells"], help=text)
    cli.add_shared(arguments, "--tile", "--overlap", "--cfg-options", "--device", "--may-differ")
    return arguments


def sort_files(files: Sequence[str]) -> tuple[str | None, str, list[str]]:
    """Return the config (None for an exported file), the checkpoint or exported file, and the images."""
    exported = files[0].endswith(".onnx")
    if len(files) < (2 if exported else 3):
        raise UserError("IMAGE is missing: give CONFIG CHECKPOINT IMAGE, or EXPORTED.onnx IMAGE")
    try:
        config, *files = (None, *files) if exported else (cli.config_file(files[0]), *files[1:])
        return config, cli.weights_source(files[0]), [source(image) for image in files[1:]]
    except argparse.ArgumentTypeError as error:
        raise UserError(str(error)) from error


def source(text: str) -> str:
    """Parse an image, a film or a folder; a camera or a stream, which are no files."""
    return text if text.isdecimal() or "://" in text else cli.existing_path(text)


def check_options(args: argparse.Namespace, is_detector: bool, films: Sequence[Path | str]) -> None:
    """Refuse options that the model or the inputs cannot serve, before the first prediction."""
    if not is_detector and (args.format or args.track):
        raise UserError("--format and --track: only detectors find objects; leave them out")
    if films and (args.format or args.attention):
        raise UserError(f"--format and --attention: {films[0]} is a film; leave it out")
    if not films and (args.track or args.every > 1):
        raise UserError("--track and --every: none of the inputs is a film; leave them out")


def main(args: argparse.Namespace) -> None:
    config, checkpoint, images = sort_files(args.files)
    if config is None and (args.cfg_options or args.device == "cuda" or args.amp or args.attention):
        raise UserError(
            "--device, --amp, --attention and --cfg-options: an exported file has no config and runs on the CPU; leave them out"
        )
    from mmlisa.training.config import import_quietly, load_config, parse_options

    cfg = load_config(config, options=parse_options(args.cfg_options)) if config else None
    if not args.verbose:
        import_quietly(cfg and cfg.get("default_scope"))
    from mmlisa import runtime
    from mmlisa.checkpoints import use_safe_loader
    from mmlisa.inference.faster import use_half
    from mmlisa.inference.films import is_film
    from mmlisa.inference.pictures import find_inputs, predict_pictures
    from mmlisa.inference.predictor import Predictor
    from mmlisa.inference.tiled import tile_config

    use_safe_loader()
    options = dict(tile=args.tile, overlap=args.overlap) if cfg is None else {}
    if cfg is None:
        model = runtime.load(checkpoint)
    else:
        cfg = tile_config(cfg, args.tile, args.overlap)
        model = Predictor(cfg, checkpoint, device=args.device, may_differ=args.may_differ)
        if args.amp:
            use_half(model.model)
    is_detector = model.task == "detection" if cfg is None else cfg.get("default_scope") == "mmdet"
    takes_clips = getattr(model, "takes_clips", False)
    inputs = find_inputs(images, takes_clips)
    check_options(args, is_detector, [] if takes_clips else [each for each in inputs if is_film(each)])
    if args.attention:
        from mmlisa.inference.cells import use_cells

        print(use_cells(model, inputs[0] if takes_clips else runtime.read_image(inputs[0])))
    options |= dict(every=args.every, track=args.track, keep_frames=bool(args.json))
    done, failed = predict_pictures(model, [*map(str, inputs)], args.out_dir, args.score_thr, **options)
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(done, indent=1) + "\n")
    if args.format:
        from mmlisa.inference.annotations import write_annotations

        print(f"annotations: {write_annotations(args.format, done, model.classes, args.out_dir / 'annotations')}")
    if failed:
        print(f"error: {len(failed)} of the inputs could not be read:", *failed, sep="\n  ", file=sys.stderr)
        sys.exit(1)
