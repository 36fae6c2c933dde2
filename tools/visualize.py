"""Draw attention kernels of one or two trained models side by side.

``python tools/visualize.py IMAGE --model CONFIG CHECKPOINT [--model CONFIG CHECKPOINT] --layers 0 -1`` writes kernels.png
(attention kernels of query pixels, per layer and head). ``--matrices`` adds matrices.png (attention matrices of the layers, with
their ranks).
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from mmlisa import cli


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.build_parser(__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("image", help="image file")
    parser.add_argument(
        "--model",
        nargs="+",
        action="append",
        required=True,
        metavar="CONFIG [CHECKPOINT] [KEY=VALUE …]",
        help="a config, its checkpoint (random weights without) and new values of the config; once per model",
    )
    parser.add_argument(
        "--layers", type=int, nargs="+", default=[0, -1], help="operators, from 0 or from the end (default: 0 -1)"
    )
    parser.add_argument("--heads", type=int, nargs="+", default=[0, 1], help="heads of each layer (default: 0 1)")
    parser.add_argument(
        "--query",
        type=float,
        nargs=2,
        action="append",
        metavar=("Y", "X"),
        help="query pixel, relative to the image; repeat for more (default: 0.5 0.5)",
    )
    parser.add_argument("--size", type=int, nargs=2, metavar=("H", "W"), help="size the image is resized to")
    parser.add_argument(
        "--out-dir",
        type=Path,
        default=Path("work_dirs/visualize"),
        help="folder of the pictures (default: %(default)s)",
    )
    parser.add_argument("--min-matched", type=float, default=0.9, help="share of the model the checkpoint must hold")
    parser.add_argument("--matrices", action="store_true", help="also draw whole attention matrices; of small images")
    args = parser.parse_args(argv)
    if any(len(_files(model)) not in (1, 2) for model in args.model):
        parser.error("--model takes a config and at most one checkpoint")
    return args


def _files(model: Sequence[str]) -> list[str]:
    """Return the files that --model names, without the new values of config entries."""
    return [item for item in model if not _is_option(item)]


def _options(model: Sequence[str]) -> list[str]:
    """Return the new values of config entries."""
    return [item for item in model if _is_option(item)]


def _is_option(item: str) -> bool:
    return "=" in item and not Path(item).is_file()


def _label(config: str, options: Sequence[str]) -> str:
    """Return the name of the config and the new values, each with the last part of its key."""
    pairs = (option.split("=", 1) for option in options)
    values = (f"{key.rpartition('.')[2]}={value}" for key, value in pairs)
    return ", ".join([Path(config).stem.replace("_", " "), *values])


def _labels(models: Sequence[Sequence[str]]) -> list[str]:
    """Return a name per model; the checkpoint belongs to it if models differ in nothing else."""
    files = [_files(model) for model in models]
    labels = [_label(names[0], _options(model)) for names, model in zip(files, models, strict=True)]
    return [
        ", ".join([label, *names[1:]]) if labels.count(label) > 1 else label
        for label, names in zip(labels, files, strict=True)
    ]


def main(args: argparse.Namespace) -> None:
    import torch

    from figures.kernels import (
        attention_kernels,
        draw_kernels,
        load_backbone,
        network_input,
        read_image,
    )
    from figures.matrices import attention_matrices, draw_matrices
    from mmlisa.training.config import load_config, parse_options

    torch.manual_seed(0)  # without a checkpoint, the same random weights each time
    picture = read_image(args.image, tuple(args.size) if args.size else None)
    queries = [tuple(query) for query in args.query or [(0.5, 0.5)]]
    kernels, matrices = [], {}
    for label, model in zip(_labels(args.model), args.model, strict=True):
        (config, *checkpoint), options = _files(model), _options(model)
        cfg = load_config(config, options=parse_options(options))
        backbone, preprocessor = load_backbone(cfg, *(checkpoint or [None]), args.min_matched)
        image = network_input(picture, preprocessor)
        kernels.append((label, attention_kernels(backbone, image, args.layers, queries)))
        if args.matrices:
            matrices[label] = attention_matrices(backbone, image, args.layers)
    draw_kernels(picture, queries, kernels, args.heads, args.out_dir / "kernels.png")
    written = ["kernels.png"]
    if args.matrices:
        draw_matrices(matrices, args.heads[0], args.out_dir / "matrices.png")
        written.append("matrices.png")
    for name in written:
        print(args.out_dir / name)


if __name__ == "__main__":
    cli.run(main, parse_args())
