"""Draw attention kernels of models, or the curves of a training: ``mmlisa visualize IMAGE --model CONFIG CHECKPOINT``.

``--layers 0 -1`` chooses layers, and a second ``--model`` draws another model beside the first, in kernels.png. ``--matrices``
adds matrices.png (attention matrices of the layers, with their ranks), and ``--features`` features.png (the main components of
the last map as colours). ``mmlisa visualize WORK_DIR`` writes curves.png.
"""

import argparse
from pathlib import Path

from mmlisa import cli


def parser() -> argparse.ArgumentParser:
    arguments = cli.build_parser(__doc__, "visualize")
    add = arguments.add_argument
    add("source", type=cli.existing_path, help="image, or without --model the folder of a training")
    words = "CONFIG [CHECKPOINT] [KEY=VALUE …]"
    text = "a config, its checkpoint (random weights without) and new values of the config; once per model"
    add("--model", nargs="+", action="append", default=[], metavar=words, help=text)
    add("--layers", type=int, nargs="+", default=[0, -1], help="indices of attentions (default: 0 -1)")
    add("--heads", type=int, nargs="+", default=[0, 1], help="heads of each layer (default: 0 1)")
    text = "query pixel, relative to the image; repeat for more (default: 0.5 0.5)"
    add("--query", type=cli.fraction, nargs=2, action="append", metavar=("Y", "X"), help=text)
    add("--size", type=cli.positive_int, nargs=2, metavar=("H", "W"), help="size the image is resized to")
    add("--out-dir", type=Path, default="work_dirs/visualize", help="folder of the pictures (default: %(default)s)")
    add("--matrices", action="store_true", help="also draw whole attention matrices; of small images")
    add(
        "--features",
        action="store_true",
        help="also draw the three main components of the backbone's last map as colours",
    )
    cli.add_shared(arguments, "--may-differ")
    return arguments


def main(args: argparse.Namespace) -> None:
    args.out_dir.mkdir(parents=True, exist_ok=True)
    if not args.model:
        from mmlisa.visualization.curves import draw_curves, read_curves

        draw_curves(read_curves(args.source), args.out_dir / "curves.png")
        print(args.out_dir / "curves.png")
        return
    import numpy as np
    import torch
    from PIL import Image

    from mmlisa import runtime
    from mmlisa.checkpoints import fresh_in_a_start, load_checkpoint, read_checkpoint, use_safe_loader
    from mmlisa.training.config import build_model, load_config, parse_options
    from mmlisa.visualization import kernels as figures
    from mmlisa.visualization.features import draw_features, last_map

    use_safe_loader()
    torch.manual_seed(0)  # without a checkpoint, the same random weights each time
    file = Image.fromarray(runtime.read_image(args.source))
    file = file.resize(args.size[::-1], Image.Resampling.BICUBIC) if args.size else file
    picture = torch.from_numpy(np.array(file)).permute(2, 0, 1)
    queries = args.query or [(0.5, 0.5)]
    kernels, matrices, maps = [], {}, {}
    for model in args.model:
        label = " ".join([Path(model[0]).stem, *model[1:]])
        options = [word for word in model if "=" in word and not Path(word).is_file()]
        config, *checkpoint = (word for word in model if word not in options)
        network = build_model(load_config(config, options=parse_options(options))).eval()
        for file in checkpoint:
            weights = read_checkpoint(file)
            # The figures show the backbone only, as a training starts from it.
            load_checkpoint(network, weights, file, [*args.may_differ, *fresh_in_a_start(network, weights)])
        # OpenMMLab's pipelines read BGR. What the preprocessor pads is cut off, so that the grid covers the picture.
        data = network.data_preprocessor({"inputs": [picture.flip(0)], "data_samples": None})
        image = data["inputs"][0, :, : picture.shape[1], : picture.shape[2]]
        kernels.append((label, figures.attention_kernels(network.backbone, image, args.layers, queries)))
        if args.matrices:
            matrices[label] = figures.attention_matrices(network.backbone, image, args.layers)
        if args.features:
            maps[label] = last_map(network.backbone, image)
    figures.draw_kernels(picture, queries, kernels, args.heads, args.out_dir / "kernels.png")
    if args.matrices:
        figures.draw_matrices(matrices, args.heads[0], args.out_dir / "matrices.png")
    if args.features:
        draw_features(picture, maps, args.out_dir / "features.png")
    print(f"written to {args.out_dir}")
