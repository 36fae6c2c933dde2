"""Check a config's data, list what is wrong, and draw samples: ``mmlisa check-data CONFIG``."""

import argparse
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mmlisa import cli

SPLITS = ("train", "val", "test")
CELL = 360  # pixels of a side of a drawn sample


def parser() -> argparse.ArgumentParser:
    arguments = cli.build_parser(__doc__, "check-data")
    cli.add_shared(arguments, "config", "--cfg-options")
    arguments.add_argument("--split", nargs="+", choices=SPLITS, default=SPLITS, help="what to check (default: all)")
    arguments.add_argument(
        "--draw", type=cli.positive_int, metavar="N", help="draw N samples of each split after its pipeline"
    )
    arguments.add_argument(
        "--out-dir", type=Path, default="work_dirs/samples", help="their folder (default: %(default)s)"
    )
    return arguments


def main(args: argparse.Namespace) -> None:
    from mmlisa.training.config import check_data, load_config, parse_options
    from mmlisa.training.log import import_quietly

    cfg = load_config(args.config, options=parse_options(args.cfg_options))
    check_data(cfg, *args.split)
    if not args.verbose:
        import_quietly(cfg.get("default_scope"))
    from mmlisa.data.checking import check_splits

    found = 0
    for split, report in check_splits(cfg, args.split):
        for line in report.lines():
            print(f"{split}: {line}", flush=True)
        found += len(report.problems)
        if args.draw:
            draw_samples(cfg[f"{split}_dataloader"].dataset, args.draw, args.out_dir / f"{split}.png")
    print(f"{found} problems" if found else "nothing wrong")
    sys.exit(bool(found))


def draw_samples(config: Mapping[str, Any], number: int, path: Path) -> None:
    """Draw samples of a data set with their annotations on one sheet, after all steps of its pipeline.

    Test pipelines resize images before they load annotations, which then have the size of the file.
    """
    import mmcv
    import numpy as np
    import torch
    from mmengine.registry import DATASETS
    from mmengine.runner import set_random_seed
    from torchvision.utils import make_grid

    from mmlisa.classes import Classes
    from mmlisa.visualization.overlays import draw_truth

    set_random_seed(0)  # choice and augmentation
    dataset = DATASETS.build(config)
    inner = dataset
    while hasattr(inner, "dataset"):
        inner = inner.dataset
    steps = [type(step).__name__ for step in inner.pipeline.transforms]
    unresized = "LoadAnnotations" in steps and any("Resize" in step for step in steps[: steps.index("LoadAnnotations")])
    cells = []
    for index in np.random.permutation(len(dataset))[:number]:
        sample = dataset[int(index)]
        truth, picture = sample["data_samples"], to_picture(sample["inputs"])
        if unresized:
            picture = mmcv.imread(truth.img_path, channel_order="rgb")
        cell = mmcv.imrescale(draw_truth(picture, truth, Classes(dataset.metainfo)), (CELL - 8, CELL - 8))
        cells.append(torch.from_numpy(mmcv.impad(cell, shape=(CELL, CELL), pad_val=255)).permute(2, 0, 1))
    sheet = make_grid(torch.stack(cells), math.ceil(math.sqrt(len(cells))), padding=0, pad_value=255)
    path.parent.mkdir(parents=True, exist_ok=True)
    mmcv.imwrite(sheet.permute(1, 2, 0).numpy()[..., ::-1], str(path))
    print(f"samples: {path}")


def to_picture(inputs: Any) -> Any:
    """Return the inputs of a sample as a picture: RGB, ``[H, W, 3]``, uint8.

    Args:
        inputs: an image ``[3, H, W]`` in BGR, or the clips of a video ``[clips, 3, T, H, W]``, drawn in rows.
    """
    if inputs.ndim == 5:
        from mmlisa.video import contact_sheet

        return contact_sheet(inputs)
    # Pipelines may leave floating-point values, and beyond those of 8 bits.
    return inputs.flip(0).permute(1, 2, 0).clamp(0, 255).byte().contiguous().numpy()
