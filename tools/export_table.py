"""Export stock configs of mmdet, mmseg and mmpretrain, and write docs/stock_configs.md: ``python tools/export_table.py``.

A stopped run continues with the rows that are missing. Delete ``work_dirs/export_table.json`` to measure all of them again.
"""

import argparse
import json
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
import yaml
from torch import nn

from mmlisa import export, runtime
from mmlisa.training.config import build_model, import_quietly, load_config

DOCS = Path(__file__).resolve().parents[1] / "docs" / "stock_configs.md"
ROWS = Path("work_dirs/export_table.json")
HEAD = "| config | candidates | boxes (px) | scores | MiB |\n|---|---|---|---|---|"
_DATA = yaml.safe_load((Path(__file__).parent / "research" / "stock_configs.yml").read_text(encoding="utf-8"))
CONFIGS, OPTIONS = _DATA["configs"], _DATA["options"]
SIZES = ((160, 288), (224, 160), (203, 301))  # the first is traced
# With score_thr=0, the suppression of two-stage detectors takes minutes.
TEST = dict(init_cfg=None, pretrained=None, score_thr=0.02, nms_pre=1000)


def set_all(cfg: Any, values: dict[str, Any]) -> None:
    """Set values wherever nested dicts and lists have their keys."""
    for entry in cfg.values() if isinstance(cfg, dict) else cfg:
        if isinstance(entry, dict | list | tuple):
            set_all(entry, values)
    if isinstance(cfg, dict):
        cfg.update({key: value for key, value in values.items() if key in cfg})


def build(library: str, name: str) -> tuple[Any, export.EndToEnd, tuple[int, ...] | None]:
    """Return a stock config, its model with weights of ``init_weights`` and scores that differ, and the size if it is fixed.

    With the initial weights alone all scores are nearly equal, and rounding decides which boxes are kept.
    """
    path = Path(find_spec(library).origin).parent / ".mim" / "configs" / f"{name}.py"
    options = [each for fragment, each in OPTIONS.items() if fragment in name]
    cfg = load_config(path, options=options[0] if options else None)
    set_all(cfg.model, TEST)
    torch.manual_seed(0)
    model = build_model(cfg)
    model.init_weights()
    head, is_dense = getattr(model, "bbox_head", None), not hasattr(model, "decoder") and not hasattr(model, "roi_head")
    if head is not None and not hasattr(head, "loss_cls"):
        head.loss_cls = None  # MMDetection's SSD reads it, and does not set it
    for key, parameter in model.named_parameters():
        if "head" in key and key.endswith("bias") and parameter.ndim == 1:
            nn.init.normal_(parameter, std=0.3)
            if "reg" in key and is_dense:
                parameter.data.abs_().add_(0.5)  # distances from points must be positive
        if "multi_level_conv_reg" in key or "fc_reg" in key:
            parameter.data.mul_(0.1)  # boxes of YOLOX and after six stages would be far larger than the image
        if hasattr(model, "decoder") and ("cls" in key or "query_embedding" in key) and parameter.ndim > 1:
            parameter.data.mul_(3)  # all queries would have nearly the same score
    module = export.EndToEnd(model, uint8=True)
    fixed = export.final_size(cfg, module)
    for norm in model.modules():  # the statistics of a batch
        if isinstance(norm, nn.modules.batchnorm._BatchNorm):
            norm.momentum = 1.0
            norm.train()
    image, _ = module.preprocess(smooth(fixed or (320, 320)))
    with torch.no_grad():
        maps = model.extract_feat(torch.cat([image, image.flip(1), image.flip(2), image.roll(50, 3) / 2]))
        if head is not None and is_dense:
            head.forward(maps)
    return cfg, module.eval(), fixed


def smooth(size: Sequence[int]) -> torch.Tensor:
    """Return a random smooth image ``[1, 3, H, W]``, uint8."""
    coarse = torch.rand(1, 3, 7, 9, generator=torch.Generator().manual_seed(0))
    return (nn.functional.interpolate(coarse, tuple(size), mode="bicubic").clamp(0, 1) * 255).to(torch.uint8)


def predict(model: nn.Module, library: str, size: Sequence[int]) -> Any:
    """Return the data sample that the library predicts for :func:`smooth`."""
    from mmpretrain.structures import DataSample  # for all three: the fields are free

    shapes = dict.fromkeys(("img_shape", "ori_shape", "pad_shape"), tuple(size))
    sample = DataSample(metainfo=dict(shapes, scale_factor=(1.0, 1.0)))
    image = smooth(size).flip(1)  # BGR
    with torch.no_grad():
        inputs = image if library == "mmpretrain" else [image[0]]
        return model.test_step(dict(inputs=inputs, data_samples=[sample]))[0]


def compare(expected: Any, prediction: runtime.Prediction) -> tuple[float | None, float]:
    """Return the largest difference of the boxes (None without boxes) and of the scores.

    It is relative to the best class for a classifier, and the share of other pixels for a segmentor. Detections of nearly equal
    scores may change places: each is compared with the nearest one of its label.
    """
    if prediction.probabilities is not None:
        scores = expected.pred_score.numpy()
        return None, float(np.abs(scores - prediction.probabilities).max() / scores.max())
    if prediction.segmentation is not None:
        return None, float((expected.pred_sem_seg.data[0].numpy() != prediction.segmentation).mean())
    boxes, scores, labels = (expected.pred_instances[key].numpy() for key in ("bboxes", "scores", "labels"))
    if not len(boxes) or not len(prediction.boxes):
        raise ValueError("nothing was detected, so nothing was compared")
    apart = np.abs(prediction.boxes[:, None] - boxes).max(axis=2)
    apart[prediction.labels[:, None] != labels] = np.inf
    by_score = np.abs(prediction.scores[:, None] - scores)
    # Rounding decides which of nearly equal scores is the last of a full list.
    last = max(scores.min(), prediction.scores.min()) + 1e-5 if len(boxes) == len(prediction.boxes) >= 100 else -1
    rows, columns = (np.flatnonzero(each > last) for each in (prediction.scores, scores))
    if not len(rows) or not len(columns):
        raise ValueError("all scores are equal, so nothing was compared")
    cost = apart + 1e3 * by_score
    pairs = [(rows, cost.argmin(axis=1)[rows]), (cost.argmin(axis=0)[columns], columns)]
    return tuple(max(float(difference[pair].max()) for pair in pairs) for difference in (apart, by_score))


def measure(library: str, name: str, folder: Path) -> dict[str, Any]:
    """Export one config and compare it with its library; ``reason`` if it is refused."""
    try:
        cfg, module, fixed = build(library, name)
        metadata = export.describe(cfg, module, {}) | {"mmlisa_steps": "[]"}
        is_free = not fixed and export.can_be_free(module)
        size = tuple(fixed or SIZES[0])
        out = folder / "model.onnx"
        differences = export.write(module, out, size, dynamic=is_free, metadata=metadata)
    except ValueError as error:
        return dict(reason=str(error))
    exported, expect = runtime.load(out), partial(predict, module.model, library)
    pixels = {each: smooth(each)[0].permute(1, 2, 0).numpy() for each in (SIZES if is_free else [size])}
    errors = [compare(expect(each), exported.predict(image, 0.0)) for each, image in pixels.items()]
    boxes, scores = zip(*errors, strict=True)
    row = dict(boxes=None if boxes[0] is None else max(boxes), scores=max(scores), mib=out.stat().st_size / 2**20)
    row["candidates"] = max(differences.values())
    return row


def show(name: str, row: dict[str, Any]) -> str:
    """Return a line of the table."""
    if "reason" in row:
        cells = [f"refused: {row['reason']}", *[""] * 3]
    else:
        cells = [f"{row[key]:.0e}" if row[key] is not None else "" for key in ("candidates", "boxes", "scores")]
        cells.append(f"{row['mib']:.0f}")
    return f"| `{name.split('/')[-1]}` | " + " | ".join(cells) + " |"


def add_row(library: str, name: str) -> None:
    """Measure one config, and add its row to :data:`ROWS`."""
    with TemporaryDirectory() as folder:
        row = measure(library, name, Path(folder))
    ROWS.write_text(json.dumps(read_rows() | {name: row}, indent=1))
    print(show(name, row), flush=True)


def read_rows() -> dict[str, Any]:
    return json.loads(ROWS.read_text()) if ROWS.exists() else {}


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("only", nargs="*", help="parts of configs' names; the page is written once all rows are there")
    return parser.parse_args(argv)


def main(args: argparse.Namespace) -> None:
    import_quietly()
    ROWS.parent.mkdir(exist_ok=True)
    names = [(library, name) for library, names in CONFIGS.items() for name in names]
    for library, name in names:
        if name not in read_rows() and (not args.only or any(fragment in name for fragment in args.only)):
            # A process each, so that memory is free again; if it fails, the other rows are measured.
            process = get_context("fork").Process(target=add_row, args=(library, name))
            process.start()
            process.join()
    if missing := [name for _, name in names if name not in read_rows()]:
        print(f"{len(missing)} rows are missing: {', '.join(missing)}")
        return
    lines = [HEAD, *(show(name, read_rows()[name]) for _, name in names)]
    before, _, after = DOCS.read_text().split("<!-- table -->\n")
    DOCS.write_text("<!-- table -->\n".join([before, "\n".join(lines) + "\n", after]))


if __name__ == "__main__":
    main(parse_args())
