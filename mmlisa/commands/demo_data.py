"""Make the offline demo data, real objects pasted on real backgrounds with exact masks: ``mmlisa demo-data``."""

import argparse
from pathlib import Path

from mmlisa import cli


def parser() -> argparse.ArgumentParser:
    arguments = cli.build_parser(__doc__, "demo-data")
    add = arguments.add_argument
    add("--root", default="data/demo", help="folder to make (default: %(default)s)")
    add("--seed", type=int, default=0, help="source of every random choice (default: %(default)s)")
    add("--train-images", type=cli.positive_int, default=280, help="default: %(default)s")
    add("--val-images", type=cli.positive_int, default=50, help="default: %(default)s")
    text = "large: 3,000 pixels with 200 objects of 20 to 60 pixels, in COCO's layout only (default: %(default)s)"
    add("--scenes", choices=("small", "large"), default="small", help=text)
    return arguments


def main(args: argparse.Namespace) -> None:
    from mmlisa.checkpoints import atomic_path
    from mmlisa.datasets.demo import CLASSES, make_demo, make_large_scene, write_coco

    numbers = {"train": args.train_images, "val": args.val_images}
    if args.scenes == "small":
        make_demo(args.root, args.seed, numbers)
    elif not Path(args.root).exists():
        with atomic_path(args.root) as folder:
            for split, number in numbers.items():
                scenes = (make_large_scene(split, index, args.seed) for index in range(number))
                write_coco(folder / "annotations" / f"instances_{split}.json", folder / split, scenes)
    root = Path(args.root)
    print(f"COCO's layout:   {root}/annotations/instances_train.json, {root}/train/; the same with val")
    if args.scenes == "small":
        print(f"ADE20K's layout: {root}/ade/; ImageNet's layout: {root}/cls/")
    print(f"classes:         {', '.join(CLASSES)}")
