"""Check a config's data, list what is wrong and summarise classes and sizes: ``python tools/check_data.py CONFIG``."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mmlisa import cli

SPLITS = ("train", "val", "test")


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.build_parser(__doc__)
    parser.add_argument("config", help="config file, or the name of a config that ships with mmlisa")
    parser.add_argument("--split", nargs="+", choices=SPLITS, default=SPLITS, help="what to check (default: all)")
    parser.add_argument(
        "--draw", type=int, default=0, metavar="N", help="draw N samples of each split after its pipeline"
    )
    parser.add_argument("--out-dir", default="data_samples", help="folder of the drawings (default: %(default)s)")
    cli.add_config_options(parser)
    return parser.parse_args(argv)


def main(args: argparse.Namespace) -> None:
    if args.draw < 0:
        raise ValueError(f"--draw is '{args.draw}'; it must be a number of samples from 0")
    from mmlisa.training.config import check_data, load_config, parse_options

    cfg = load_config(args.config, options=parse_options(args.cfg_options))
    check_data(cfg, *args.split)

    from mmlisa.training.log import import_quietly

    if not args.verbose:
        import_quietly(cfg.get("default_scope"))
    from mmlisa.datasets.checking import Finding, build_dataset, check_dataset, find_shared, group
    from mmlisa.training.checks import compare_classes

    found, seen, reports = 0, [], {}
    for split in (name for name in SPLITS if name in args.split):  # training first: the others are compared with it
        config = (cfg.get(f"{split}_dataloader") or {}).get("dataset")
        if config is None or config in seen:  # most configs test on the validation data
            continue
        seen.append(config)
        reports[split] = check_dataset(build_dataset(cfg, split))
        findings = reports[split].findings
        if "train" in reports and split != "train":
            findings = [*findings, *find_shared(reports["train"], reports[split])]
            if difference := compare_classes(reports["train"].classes, reports[split].classes):
                findings.append(Finding("classes", difference))
        for line in [*reports[split].summary(), *group(findings)]:
            print(f"{split}: {line}", flush=True)
        found += len(findings)
        if args.draw:
            draw_samples(config, args.draw, Path(args.out_dir, split))
    print(f"{found} problems" if found else "nothing wrong")
    sys.exit(bool(found))


def draw_samples(config: dict[str, Any], count: int, folder: Path) -> None:
    """Draw samples of a data set, evenly spaced, after all steps of its pipeline.

    Test pipelines resize images before they load annotations, which then have the size of the file.
    """
    import cv2
    import mmcv
    from mmengine.dataset import Compose
    from mmengine.registry import DATASETS

    from figures.training_images import to_picture
    from mmlisa.visualization.overlays import Classes, draw_truth

    inner = dataset = DATASETS.build(config)
    while hasattr(inner, "dataset"):
        inner = inner.dataset
    steps = [type(step).__name__ for step in getattr(inner, "pipeline", Compose(())).transforms]
    unresized = "LoadAnnotations" in steps and any("Resize" in step for step in steps[: steps.index("LoadAnnotations")])
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(min(count, len(dataset))):
        sample = dataset[number * len(dataset) // count if count < len(dataset) else number]
        if unresized and sample["inputs"].ndim == 3:
            picture = mmcv.imread(sample["data_samples"].img_path, channel_order="rgb")
        else:
            picture = to_picture(sample["inputs"])
        drawing = draw_truth(picture, sample["data_samples"], Classes(dataset.metainfo))
        cv2.imwrite(str(folder / f"{number:03}.png"), drawing[..., ::-1])
    print(f"samples: {folder}")


if __name__ == "__main__":
    cli.run(main, parse_args())
