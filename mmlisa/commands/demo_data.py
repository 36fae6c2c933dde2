"""Make the offline demo data, real objects pasted on real backgrounds with exact masks: ``mmlisa demo-data``."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from mmlisa import cli

if TYPE_CHECKING:
    from mmlisa.datasets.demo import Scene


def parser() -> argparse.ArgumentParser:
    arguments = cli.build_parser(__doc__, "demo-data")
    arguments.add_argument("--root", default="data/demo", help="folder to make (default: %(default)s)")
    arguments.add_argument("--seed", type=int, default=0, help="source of every random choice (default: %(default)s)")
    arguments.add_argument("--train-images", type=cli.positive_int, default=280, help="default: %(default)s")
    arguments.add_argument("--val-images", type=cli.positive_int, default=50, help="default: %(default)s")
    arguments.add_argument(
        "--scenes",
        choices=["small", "large"],
        default="small",
        help="large: 3,000 pixels with 200 objects of 20 to 60 pixels, in COCO's layout only (default: %(default)s)",
    )
    return arguments


def make_large_scene(split: str, index: int, seed: int, side: int = 3000, objects: int = 200) -> "Scene":
    """Return a square scene of ``side`` pixels with objects of 20 to 60 pixels, which do not overlap."""
    import numpy as np

    from mmlisa.datasets.demo import CLASSES, COINS, Instance, Scene, load_objects, pose, random_background

    rng = np.random.default_rng([seed, split == "val", index])
    image, owner, labels = random_background(rng, side, side), np.full((side, side), -1, np.int16), []
    while len(labels) < objects:
        name = CLASSES[label := int(rng.integers(len(CLASSES)))]
        cutouts = load_objects()[name][COINS[split] if name == "coin" else slice(None)]
        cutout = pose(rng, cutouts[rng.integers(len(cutouts))], rng.uniform(20, 60), 180 if name == "coin" else 15)
        height, width = cutout.shape[:2]
        y, x = rng.integers(side - height), rng.integers(side - width)
        place = slice(y, y + height), slice(x, x + width)
        if (owner[place] < 0).all():
            image[place] = image[place] * (1 - cutout[..., 3:]) + cutout[..., :3]
            owner[place][cutout[..., 3] >= 0.5] = len(labels)
            labels.append(label)
    # One at a time: together the masks take ``objects * side * side`` bytes.
    instances = (Instance(label, owner == number) for number, label in enumerate(labels))
    return Scene((image * 255).round().clip(0, 255).astype(np.uint8), instances, owner >= 0)


def main(args: argparse.Namespace) -> None:
    from mmlisa.checkpoints import atomic_path
    from mmlisa.datasets.demo import CLASSES, make_demo, write_coco

    numbers = {"train": args.train_images, "val": args.val_images}
    if args.scenes == "small":
        make_demo(args.root, args.seed, numbers)
        return
    if Path(args.root).exists():
        return
    with atomic_path(args.root) as folder:
        categories = [{"id": i, "name": name} for i, name in enumerate(CLASSES, 1)]
        for split, number in numbers.items():
            scenes = (make_large_scene(split, index, args.seed) for index in range(number))
            file = folder / "annotations" / f"instances_{split}.json"
            write_coco(file, folder / split, scenes, categories, [category["id"] for category in categories])
