"""Compare tiles with one pass on large images: train a narrow Mask R-CNN on tiles, and measure AP, time and memory.

python tools/research/large_images.py scenes --backbone HyLiSANet
python tools/research/large_images.py FOLDER --backbone iViT      # annotations/{train,val}.json in COCO's format, train/ and val/
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from copy import deepcopy
from pathlib import Path

BACKBONES = {
    "HyLiSANet": "mask_rcnn_hylisanet_demo.py",
    "iViT": "mask_rcnn_ivit_demo.py",
    "Swin": "retinanet_flatten_swin_demo.py",
}
PASSES = (640, 1024, 1333, 2000)


def make_scenes(root: Path, side: int = 3000, objects: int = 200) -> Path:
    """Write scenes of ``side`` pixels with ``objects`` objects of 20 to 60 pixels: eight to train on and two to judge."""
    import numpy as np

    from mmlisa.datasets.demo import _COINS, Instance, Scene, _pose, make_once, random_background, write_coco
    from mmlisa.datasets.demo_objects import CLASSES, load_objects

    def scene(split: str, index: int) -> Scene:
        rng = np.random.default_rng([index, split == "val"])
        image, owner = random_background(rng, side, side), np.full((side, side), -1)
        labels = []
        while len(labels) < objects:
            label = int(rng.integers(len(CLASSES)))
            cutouts = load_objects()[CLASSES[label]]
            cutouts = cutouts[_COINS[split]] if CLASSES[label] == "coin" else cutouts
            cutout = _pose(rng, cutouts[rng.integers(len(cutouts))], rng.uniform(20, 60), 15)
            height, width = cutout.shape[:2]
            y, x = rng.integers(side - height), rng.integers(side - width)
            place = slice(y, y + height), slice(x, x + width)
            if (owner[place] < 0).all():
                image[place] = image[place] * (1 - cutout[..., 3:]) + cutout[..., :3]
                owner[place][cutout[..., 3] >= 0.5] = len(labels)
                labels.append(label)
        found = [Instance(label, owner == number) for number, label in enumerate(labels)]
        return Scene((image * 255).round().clip(0, 255).astype(np.uint8), found, (owner >= 0).astype(np.uint8))

    def build(folder: Path) -> None:
        categories = [{"id": i, "name": name} for i, name in enumerate(CLASSES, 1)]
        for split, number in (("train", 8), ("val", 2)):
            scenes = [scene(split, index) for index in range(number)]
            ids = [category["id"] for category in categories]
            write_coco(folder / "annotations" / f"{split}.json", folder / split, scenes, categories, ids)

    return make_once(root, build)


def make_config(args: argparse.Namespace, mode: str):
    """Return the config of a training on tiles (``mode='tiles'``), or of one pass at the side that ``mode`` names."""
    from mmlisa.deploy.tiles import tile_config
    from mmlisa.training.config import load_config

    cfg = load_config("mask_rcnn_hylisanet_demo.py", work_dir=str(args.work_dir))
    cfg.model.backbone = load_config(BACKBONES[args.backbone]).model.backbone
    cfg.model.backbone.pop("out_indices", None)
    content = json.loads((args.root / "annotations" / "train.json").read_text())
    names = [category["name"] for category in content["categories"]]
    masks = any(entry.get("segmentation") for entry in content["annotations"])
    cfg.model.roi_head.bbox_head.num_classes = len(names)
    cfg.model.roi_head.mask_head.num_classes = len(names)
    if not masks:
        cfg.model.roi_head.mask_roi_extractor = cfg.model.roi_head.mask_head = None
    if mode.isdecimal():  # as many objects as tiles can find
        cfg.model.test_cfg.rpn.update(nms_pre=2000, max_per_img=2000)
        cfg.model.test_cfg.rcnn.max_per_img = 1000
    load, resize, annotations, pack = cfg.test_dataloader.dataset.pipeline
    annotations.with_mask = masks
    tile, flip = dict(type="mmlisa.RandomTile", size=args.tile), dict(type="RandomFlip", prob=0.5)
    pipelines = {"train": [load, tile, annotations, flip, dict(type="PackDetInputs")]}
    pipelines["test"] = [load, dict(resize, scale=(int(mode),) * 2), pack] if mode.isdecimal() else [load, pack]
    for split, pipeline in pipelines.items():
        name = "train" if split == "train" else "val"
        cfg[f"{split}_dataloader"].dataset = dict(
            type="mmlisa.CocoDataset",
            data_root=f"{args.root}/",
            ann_file=f"annotations/{name}.json",
            data_prefix=dict(img=f"{name}/"),
            metainfo=dict(classes=names),
            test_mode=split != "train",
            pipeline=deepcopy(pipeline),
        )
    cfg.train_dataloader.batch_size = 2
    cfg.train_cfg.update(max_iters=args.iterations)
    cfg.val_dataloader = cfg.val_evaluator = cfg.val_cfg = None
    cfg.param_scheduler[1].end = args.iterations
    cfg.default_hooks.checkpoint = dict(type="CheckpointHook", by_epoch=False, interval=args.iterations)
    cfg.load_from = args.load_from
    cfg.test_evaluator.update(
        ann_file=f"{args.root}/annotations/val.json",
        metric=["bbox", "segm"] if masks else ["bbox"],
        outfile_prefix=str(args.work_dir / mode),
    )
    return cfg if mode.isdecimal() else tile_config(cfg, args.tile)


def measure(args: argparse.Namespace, mode: str) -> str:
    """Return a row of the table: AP of boxes in percent (all, below 32 pixels, 32 to 96), seconds per image, peak memory."""
    from mmdet.evaluation import CocoMetric  # noqa: F401  (registers mmdet's metrics)
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    from mmlisa.training.runner import build_runner

    cfg = make_config(args, mode)
    cfg.load_from = str(args.work_dir / f"iter_{args.iterations}.pth")
    cfg.work_dir = str(args.work_dir / "test")
    runner = build_runner(cfg, 1.0)
    start = time.perf_counter()
    runner.test()
    seconds = (time.perf_counter() - start) / len(runner.test_dataloader)
    truth = COCO(str(args.root / "annotations" / "val.json"))
    evaluation = COCOeval(truth, truth.loadRes(str(args.work_dir / f"{mode}.bbox.json")), "bbox")
    evaluation.params.maxDets = [1, 100, 1000]
    evaluation.evaluate()
    evaluation.accumulate()
    precision = evaluation.eval["precision"][..., -1]  # [IoU, recall, class, size]
    shares = [
        100 * part[part >= 0].mean()
        for part in (precision[..., 0], precision[0, ..., 0], precision[..., 1], precision[..., 2])
    ]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    name = f"tiles of {args.tile}" if mode == "tiles" else f"one pass at {mode}"
    return (
        f"| {args.backbone} | {name} | "
        + " | ".join(f"{share:.1f}" for share in shares)
        + f" | {seconds:.1f} | {peak:.1f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("data", help="`scenes`, or a folder")
    parser.add_argument("--backbone", choices=BACKBONES, default="HyLiSANet")
    parser.add_argument("--tile", type=int, default=320)
    parser.add_argument("--iterations", type=int, default=400)
    parser.add_argument("--load-from", help="checkpoint to start from")
    parser.add_argument("--work-dir", type=Path, default="work_dirs/large_images")
    parser.add_argument("--mode", help=argparse.SUPPRESS)  # of a child process, whose peak memory is measured
    args = parser.parse_args()
    args.root = make_scenes(Path("data/large_scenes")) if args.data == "scenes" else Path(args.data)
    args.work_dir = args.work_dir / f"{args.root.name}_{args.backbone}"
    if args.mode == "train":
        from mmlisa.training.runner import build_runner, train

        train(build_runner(make_config(args, "tiles"), 0.5))
        return
    if args.mode:
        print(measure(args, args.mode))
        return
    if not (args.work_dir / f"iter_{args.iterations}.pth").exists():
        subprocess.run([sys.executable, *sys.argv, "--mode", "train"], check=True)
    print(
        "| backbone | test | AP | AP50 | AP small | AP medium | seconds per image | peak GiB |\n|---|---|---|---|---|---|---|---|"
    )
    for mode in ("tiles", *map(str, PASSES)):
        done = subprocess.run(
            [sys.executable, *sys.argv, "--mode", mode], check=True, stdout=subprocess.PIPE, text=True
        )
        print(done.stdout.splitlines()[-1], flush=True)


if __name__ == "__main__":
    main()
