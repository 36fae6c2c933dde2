"""Write the confusion matrix of a checkpoint (CSV, picture): ``python tools/confusion_matrix.py CONFIG CHECKPOINT``."""

import argparse
import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mmlisa import cli


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.build_parser(__doc__)
    parser.add_argument("config", help="config file, or the name of a config that ships with mmlisa")
    parser.add_argument("checkpoint", help="checkpoint file")
    parser.add_argument("--out-dir", help="folder of confusion.csv and confusion.png (default: the config's work dir)")
    parser.add_argument(
        "--score-thr", type=float, default=0.3, help="detections below it do not count (default: %(default)s)"
    )
    parser.add_argument("--min-matched", type=float, default=0.9, help="share of the model the checkpoint must hold")
    cli.add_config_options(parser)
    return parser.parse_args(argv)


def main(args: argparse.Namespace) -> None:
    from mmlisa.training import config
    from mmlisa.training.config import check_data

    cfg = config.load_config(args.config, options=config.parse_options(args.cfg_options))
    scope = cfg.get("default_scope")
    if scope not in ("mmdet", "mmseg", "mmpretrain"):
        raise ValueError(f"CONFIG '{args.config}': default_scope='{scope}' is not mmdet, mmseg or mmpretrain")
    check_data(cfg, "test")
    config.set_show_dir(cfg, None)

    from mmlisa.checkpoints import load_checkpoint
    from mmlisa.deploy.cpu import optimize_for_cpu
    from mmlisa.training.runner import build_runner
    from mmlisa.visualization.report import draw_confusion

    if "://" not in args.checkpoint:  # a damaged file is reported before the data are read and the model is built
        load_checkpoint(args.checkpoint)
    folder = Path(args.out_dir or cfg.work_dir)
    cfg.load_from, cfg.resume = args.checkpoint, False
    cfg.work_dir = str(Path(cfg.work_dir) / "confusion")  # not over the config of the training
    runner = build_runner(cfg, args.min_matched, same_shapes=True, verbose=args.verbose)
    optimize_for_cpu(runner.model)
    dataset = runner.test_loop.dataloader.dataset
    names = list(dataset.metainfo["classes"])
    counter = build_counter(scope, dataset, len(names), args.score_thr)
    runner.test_evaluator.metrics[:] = [counter]
    runner.test()

    if scope == "mmdet":
        names.append("nothing")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "confusion.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["annotated \\ predicted", *names])
        rows.writerows([name, *counts] for name, counts in zip(names, counter.total.tolist(), strict=True))
    draw_confusion(counter.total, names, folder / "confusion.png")
    print(f"{folder / 'confusion.csv'}\n{folder / 'confusion.png'}")


def build_counter(scope: str, dataset: Any, num_classes: int, score_threshold: float) -> Any:
    """Return the metric that counts in its attribute ``total``, ``[annotated, predicted]``.

    The unit is an object of mmdet's data sets, a pixel of mmseg's, an image of mmpretrain's. The last row and column of a
    detector are those of detections without an object and of objects without a detection.
    """
    import numpy as np
    from mmengine.evaluator import BaseMetric

    from mmlisa.visualization.evaluation import count_labels, match_image

    def count_objects(sample: Mapping[str, Any]) -> np.ndarray:
        predicted, info = sample["pred_instances"], infos[sample["img_id"]]
        annotated = [
            dict(bbox=to_xywh(each["bbox"]), category_id=each["bbox_label"], iscrowd=each["ignore_flag"])
            for each in info["instances"]
        ]
        found = [
            dict(bbox=to_xywh(box), category_id=label)
            for box, label, score in zip(
                predicted["bboxes"].tolist(),
                predicted["labels"].tolist(),
                predicted["scores"].tolist(),
                strict=True,
            )
            if score >= score_threshold
        ]
        objects, pairs = match_image(annotated, found)
        matrix = np.zeros((num_classes + 1,) * 2, int)
        for i, j in pairs:
            row = -1 if i is None else objects[i]["category_id"]
            matrix[row, -1 if j is None else found[j]["category_id"]] += 1
        return matrix

    def to_xywh(box: Sequence[float]) -> list[float]:
        left, top, right, bottom = box
        return [left, top, right - left, bottom - top]

    def count(sample: Mapping[str, Any]) -> np.ndarray:
        if scope == "mmdet":
            return count_objects(sample)
        names = ("gt_sem_seg", "pred_sem_seg") if scope == "mmseg" else ("gt_label", "pred_label")
        if missing := [name for name in names if name not in sample]:
            raise ValueError(
                f"the test data or predictions have no '{missing[0]}'; a confusion matrix needs one class for each image or pixel"
            )
        values = [sample[name]["data"] if scope == "mmseg" else sample[name] for name in names]
        if scope == "mmpretrain" and any(value.numel() != 1 for value in values):
            raise ValueError(
                "the test data or predictions have several classes for an image; a confusion matrix needs one"
            )
        return count_labels(*(value.cpu().numpy().ravel() for value in values), num_classes)

    class Counter(BaseMetric):
        total = np.zeros((num_classes + (scope == "mmdet"),) * 2, int)

        def process(self, data_batch: Any, data_samples: Sequence[Mapping[str, Any]]) -> None:
            # Of the matrix of an image, the entries that are not 0. MMEngine gathers a result per image from all processes, and
            # drops those of the images that fill up the last batch.
            for matrix in map(count, data_samples):
                places = matrix.nonzero()
                self.results.append((places, matrix[places]))

        def compute_metrics(self, results: Sequence[tuple[tuple[np.ndarray, ...], np.ndarray]]) -> dict[str, float]:
            self.total = np.zeros_like(self.total)
            for places, counts in results:
                self.total[places] += counts
            return {}

    infos = (
        {info["img_id"]: info for info in map(dataset.get_data_info, range(len(dataset)))} if scope == "mmdet" else {}
    )
    if scope == "mmdet" and len(infos) < len(dataset):  # as several joined data sets have
        raise ValueError(
            "images of test_dataloader.dataset share an img_id; count each of the joined data sets by itself"
        )
    return Counter()


if __name__ == "__main__":
    cli.run(main, parse_args())
