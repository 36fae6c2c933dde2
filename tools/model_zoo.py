"""Write configs/metafile.yml: parameters, FLOPs and the papers' accuracies of every config. It counts for minutes.

The site shows it as the model zoo. The first comment of a config is its entry:
``# TITLE: the paper has ACCURACY (SOURCE).``
"""

import argparse
import re
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import yaml
from tqdm import tqdm

ROOT = Path(__file__).parents[1]
SECTIONS = {
    "mmdet": "Detection and instance segmentation, COCO",
    "mmseg": "Semantic segmentation, ADE20K",
    "mmpretrain": "Classification, ImageNet; video",
}
TASKS = {"mmdet": "Object Detection", "mmseg": "Semantic Segmentation", "mmpretrain": "Image Classification"}
# Names of metrics in a first comment, and in a model index.
METRICS = {"box AP": "box AP", "mask AP": "mask AP", "AP": "box AP", "mIoU": "mIoU", "top-1": "Top 1 Accuracy"}
_HEADER = re.compile(
    r"(?:the|its) paper has (?!no )(?P<paper>.+?)(?: \((?P<source>[^()]+)\)(?P<remark>[^.]*))?\.(?:\s|$)"
)


def read_header(path: Path) -> tuple[str, str, str]:
    """Return title, accuracy and source from the first comment of a config; accuracy and source may be empty."""
    lines = takewhile(lambda line: line.startswith("#"), path.read_text(encoding="utf-8").splitlines())
    comment = " ".join(line.removeprefix("#").strip() for line in lines)
    header = _HEADER.search(comment)
    title = re.split(r": (?:the|its) paper|: not in the paper|; the paper|\. (?=[A-Z])|\.$", comment)[0]
    if not header:
        return title, "", ""
    tables = [source.strip() for source in (header["source"] or "").split(";") if re.search("Table|App", source)]
    return title, header["paper"] + (header["remark"] or ""), tables[0] if tables else "its paper"


def read_metrics(paper: str) -> dict[str, float]:
    """Return the numbers of a quoted accuracy by their names in a model index: ``'box AP 44.2, mask AP 40.2'``."""
    numbers: dict[str, float] = {}
    for name, metric in METRICS.items():
        match = re.search(rf"(?<!\w )\b{name} (\d+\.\d+)|(\d+\.\d+)% {name}", paper)
        if match:
            numbers.setdefault(metric, float(match[1] or match[2]))
    return numbers


def to_entry(path: Path) -> dict[str, Any]:
    """Count the model of a config, and return its entry in the model index."""
    import torch
    from mmengine.config import Config

    from research.conventions import CONVENTIONS, count
    from research.paper_tables import build_on_meta

    cfg = Config.fromfile(path)
    counts = count(build_on_meta(path.name), torch.empty(1, *input_shape(path.stem, cfg), device="meta"))
    metadata = {
        "Parameters": counts.parameters,
        "FLOPs": round(CONVENTIONS["products"].macs(counts)),
        "Library": cfg.default_scope,
        "Starts from": _weights(cfg) or "random weights",
    }
    entry = dict(Name=path.stem, Config=path.relative_to(ROOT).as_posix(), Metadata=metadata)
    if metrics := read_metrics(read_header(path)[1]):
        dataset = f"{path.stem.removesuffix('_v2').rsplit('_', 1)[1]} (the paper's result)"
        entry["Results"] = [dict(Task=TASKS[cfg.default_scope], Dataset=dataset, Metrics=metrics)]
    return entry


def _weights(cfg: Any) -> str | None:
    backbone = cfg.model.get("backbone") or cfg.model.student.backbone  # a distilling classifier wraps the student
    init_cfg = backbone.get("init_cfg") or {}
    first = init_cfg[0] if isinstance(init_cfg, list) else init_cfg
    return first.get("source") or first.get("checkpoint") or cfg.get("load_from")


def input_shape(name: str, cfg: Any) -> tuple[int, ...]:
    """Return the image ``(3, H, W)``, or clip ``(3, T, H, W)``, at which the model of a config is counted."""
    if (size := (cfg.model.get("backbone") or {}).get("image_size")) and not isinstance(size, int):
        return 3, *size
    if cfg.default_scope == "mmpretrain":
        size = next(step.get("crop_size") or step.get("scale") for step in reversed(cfg.test_pipeline[:-1]))
        return 3, *((size, size) if isinstance(size, int) else size)
    if side := re.search(r"picodet.*_(\d+)_coco", name):
        return 3, int(side[1]), int(side[1])
    if name.startswith("mask2former"):
        return 3, 640, 640
    return {"mmdet": (3, 800, 1280), "mmseg": (3, 512, 2048)}[cfg.default_scope]


def to_markdown() -> str:
    """Return the tables of the model zoo, one per library."""
    rows: dict[str, list[str]] = {scope: [] for scope in SECTIONS}
    for entry in yaml.safe_load((ROOT / "configs" / "metafile.yml").read_text(encoding="utf-8"))["Models"]:
        title, paper, source = read_header(ROOT / entry["Config"])
        counts = entry["Metadata"]
        sizes = f"{counts['Parameters'] / 1e6:.4g} M | {counts['FLOPs'] / 1e9:.4g} G"
        accuracy = f"{paper} ({source})" if paper else "–"
        line = f"| `{entry['Name']}`<br>{title} | {sizes} | {accuracy} | {counts['Starts from']} |"
        rows[counts["Library"]].append(line)
    header = "| config | parameters | FLOPs | accuracy (paper) | starts from |\n|---|---|---|---|---|"
    return "".join(f"\n## {SECTIONS[scope]}\n\n{header}\n" + "\n".join(rows[scope]) + "\n" for scope in SECTIONS)


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    return argparse.ArgumentParser(description=__doc__).parse_args(argv)


def main() -> None:
    from mmlisa.training.config import import_quietly

    import_quietly()
    files = sorted((ROOT / "configs").rglob("*.py"), key=lambda path: path.stem)
    paths = [path for path in files if "_base_" not in path.parts and not path.stem.endswith("_demo")]
    models = [to_entry(path) for path in tqdm(paths, disable=None)]
    note = "# Written by tools/model_zoo.py. No weights of our own are published; accuracies are the papers'.\n"
    text = note + yaml.safe_dump(dict(Models=models), sort_keys=False, allow_unicode=True)
    (ROOT / "configs" / "metafile.yml").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    parse_args()
    main()
