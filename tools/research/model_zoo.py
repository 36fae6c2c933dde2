"""Table of all shipped configs: parameters, FLOPs and accuracy beside the paper's, and measured time and memory.

The first comment of a config is its entry: ``# TITLE: the paper has ACCURACY (SOURCE).`` Parameters and FLOPs are counted here.
The paper's numbers are those of the table row (:mod:`research.paper_tables`) whose model has the same counts.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config

from mmlisa.complexity import Complexity, count, forward_tables

from .benchmark import BACKBONES, BASELINE
from .conventions import CONVENTIONS
from .paper_tables import Row, build_on_meta, load_table, papers

# Sizes at which the papers count, for configs without a fixed size.
_INPUTS = {"mmdet": (3, 800, 1280), "mmseg": (3, 512, 2048)}
_HEADER = re.compile(
    r"(?:the|its) paper has (?!no )(?P<paper>.+?)(?: \((?P<source>[^()]+)\)(?P<remark>[^.]*))?\.(?:\s|$)"
)
_SECTIONS = {
    "mmdet": "Detection and instance segmentation, COCO",
    "mmseg": "Semantic segmentation, ADE20K",
    "mmpretrain": "Classification, ImageNet; video",
}
_METRICS = {"box AP": "box AP", "mask AP": "mask AP", "AP": "box AP", "mIoU": "mIoU", "top-1": "Top 1 Accuracy"}
_TASKS = {"mmdet": "Object Detection", "mmseg": "Semantic Segmentation", "mmpretrain": "Image Classification"}


@dataclass(frozen=True)
class Entry:
    """A config of the zoo.

    Attributes:
        config: its path from the root of the repository.
        scope: library of its model.
        title: title in its first comment.
        paper: accuracy in its first comment, or empty.
        source: paper and table of the accuracy.
        backbone: the options of the backbone that decide which benchmark is of the same network.
        weights: ``source`` of published weights, another initialisation of the backbone, or ``load_from``; empty for random
            weights.
        input: size of the counted image.
        params, macs: our counts.
        paper_params, paper_macs: the counts as the paper prints them, or empty.
    """

    config: str
    scope: str
    title: str
    paper: str
    source: str
    backbone: dict[str, Any]
    weights: str
    input: tuple[int, ...]
    params: int
    macs: float
    paper_params: str
    paper_macs: str

    @property
    def name(self) -> str:
        return Path(self.config).stem


def read_header(path: Path) -> tuple[str, str, str]:
    """Return title, accuracy and source from the first comment of a config; accuracy and source may be empty."""
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("#").strip())
    comment = " ".join(lines)
    found = _HEADER.search(comment)
    title = re.split(r": (?:the|its) paper|: not in the paper|; the paper|\. (?=[A-Z])|\.$", comment)[0]
    if not found:
        return title, "", ""
    tables = [part.strip() for part in (found["source"] or "").split(";") if "Table" in part]
    return title, found["paper"] + (found["remark"] or ""), tables[0] if tables else "its paper"


def read_metrics(paper: str) -> dict[str, float]:
    """Return the numbers of a quoted accuracy by their names in a model index: ``'box AP 44.2, mask AP 40.2'``."""
    found = {}
    for name, metric in _METRICS.items():
        match = re.search(rf"(?<!\w )\b{name} (\d+\.\d+)|(\d+\.\d+)% {name}", paper)
        if match:
            found.setdefault(metric, float(match[1] or match[2]))
    return found


def evaluate(root: Path, configs: Iterable[Path]) -> list[Entry]:
    """Count configs; ``root`` is the folder of the repository."""
    rows = _rows_by_counts()
    return [_evaluate(root, path, rows) for path in configs]


def _rows_by_counts() -> dict[tuple, tuple[Row, Complexity]]:
    """Return the papers' rows by the input, parameters and multiply-accumulates of their models."""
    found: dict[tuple, tuple[Row, Complexity]] = {}
    for row in (row for paper in papers() for row in load_table(paper).ROWS):
        counts = _count(row.model, row.input)
        found.setdefault(_key(row.input, counts), (row, counts))
    return found


def _key(shape: Sequence[int], counts: Complexity) -> tuple:
    return tuple(shape), counts.parameters, round(counts.macs())


def _count(model: Any, shape: Sequence[int]) -> Complexity:
    return count(build_on_meta(model), torch.empty(1, *shape, device="meta"), forward=forward_tables)


def _evaluate(root: Path, path: Path, rows: dict[tuple, tuple[Row, Complexity]]) -> Entry:
    cfg = Config.fromfile(path)
    shape = _input(path.stem, cfg)
    counts = _count(path.name, shape)
    row, _ = rows.get(_key(shape, counts), (None, counts))
    cells = {cell.quantity: cell for cell in row.cells} if row else {}
    printed = {quantity: cell.paper for quantity, cell in cells.items()}
    convention = cells["MACs"].convention if "MACs" in cells else "products"
    title, paper, source = read_header(path)
    # A distilling classifier wraps the student.
    backbone = cfg.model.get("backbone") or cfg.model.student.backbone
    return Entry(
        config=path.relative_to(root).as_posix(),
        scope=cfg.default_scope,
        title=title,
        paper=paper,
        source=source,
        backbone=_network(backbone),
        weights=_weights(backbone.get("init_cfg")) or cfg.get("load_from") or "",
        input=shape,
        params=counts.parameters,
        macs=CONVENTIONS[convention].macs(counts),
        paper_params=printed.get("params", ""),
        paper_macs=printed.get("MACs", ""),
    )


def _input(name: str, cfg: Config) -> tuple[int, ...]:
    if (image_size := (cfg.model.get("backbone") or {}).get("image_size")) and not isinstance(image_size, int):
        return 3, *image_size
    if cfg.default_scope == "mmpretrain":
        size = next(step.get("crop_size") or step.get("scale") for step in reversed(cfg.test_pipeline[:-1]))
        return 3, *((size, size) if isinstance(size, int) else size)
    if size := re.search(r"picodet.*_(\d+)_coco", name):
        return 3, int(size[1]), int(size[1])
    if name.startswith("mask2former"):
        return 3, 640, 640
    return _INPUTS[cfg.default_scope]


def _weights(init_cfg: Any) -> str:
    if not init_cfg:
        return ""
    first = init_cfg[0] if isinstance(init_cfg, Sequence) else init_cfg
    return str(first.get("source") or first.get("checkpoint") or "")


# --- output ------------------------------------------------------------------------------------------------------------------


def read_measured(folder: Path, suites: Sequence[str]) -> dict[str, dict[tuple[str, str], dict[str, Any]]]:
    """Read the rows of ``<suite>_cpu.json`` by suite and (network, case)."""
    return {
        suite: {
            (row["name"], row["case"]): row
            for row in json.loads((folder / f"{suite}_cpu.json").read_text(encoding="utf-8"))["rows"]
        }
        for suite in suites
    }


def _network(backbone: Mapping[str, Any]) -> dict[str, Any]:
    return {key: backbone.get(key) for key in ("type", "arch", "attention", "attn_type")}


def _benchmarked_as(network: dict[str, Any]) -> str | None:
    """Return the name of a network in the benchmarks."""
    return next((name for name, (cfg, _) in BACKBONES.items() if _network(cfg) == network), None)


def _time_and_memory(entry: Entry, measured: dict[str, dict[tuple[str, str], dict[str, Any]]]) -> str:
    suite, case = ("detectors", "800x1344") if "mask_rcnn" in entry.name else ("backbones", "224x224")
    if entry.scope == "mmseg":
        suite, case = "backbones", "512x2048"
    # The detectors that were measured are plain Mask R-CNNs.
    if suite == "detectors" and entry.name.startswith("cascade"):
        return ""
    row = measured[suite].get((_benchmarked_as(entry.backbone), case))
    if row is None or len(entry.input) > 3 or (entry.scope == "mmpretrain" and entry.input != (3, 224, 224)):
        return ""
    seconds = row["seconds"]
    time = f"{seconds:.2f} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"
    return f"{time}, {row['peak_bytes'] / 1e6:.3g} MB"


def to_markdown(entries: Sequence[Entry], measured: dict, introduction: str) -> str:
    """Return a table per library."""
    lines = ["# Model zoo", "", introduction.strip()]
    for scope, title in _SECTIONS.items():
        header = ("config", "input", "#params: paper / ours", "FLOPs: paper / ours", "accuracy (paper)",
                  "time, memory (measured)", "starts from")  # fmt: skip
        lines += ["", f"## {title}", "", f"| {' | '.join(header)} |", "|" + "---|" * len(header)]
        for e in (entry for entry in entries if entry.scope == scope):
            config = f"`{e.name}`<br>{e.title}"
            accuracy = f"{e.paper} ({e.source})" if e.paper else "–"
            columns = (
                config,
                "x".join(map(str, e.input[1:])),
                f"{e.paper_params or '–'} / {e.params / 1e6:.4g} M",
                f"{e.paper_macs or '–'} / {e.macs / 1e9:.4g} G",
                accuracy,
                _time_and_memory(e, measured) or "–",
                f"`{e.weights}`" if e.weights else "random weights",
            )
            lines.append(f"| {' | '.join(columns)} |")
    return "\n".join(lines) + "\n"


def to_metafile(entries: Sequence[Entry]) -> str:
    """Return ``configs/metafile.yml``, which ``model-index.yml`` imports. Its accuracies are marked as the papers'."""
    lines = [
        "# Written by tools/model_zoo.py. No weights of our own are published; accuracies are the papers'.",
        "Models:",
    ]
    for e in sorted(entries, key=lambda entry: entry.name):
        lines += [
            f"  - Name: {e.name}",
            f"    Config: {e.config}",
            "    Metadata:",
            f"      Parameters: {e.params}",
            f"      FLOPs: {round(e.macs)}",
        ]
        metrics = read_metrics(e.paper)
        if metrics:
            dataset = e.name.removesuffix("_v2").rsplit("_", 1)[1]
            lines += [
                "    Results:",
                f"      - Task: {_TASKS[e.scope]}",
                f"        Dataset: {dataset} (the paper's result)",
                "        Metrics:",
                *(f"          {metric}: {value}" for metric, value in metrics.items()),
            ]
    return "\n".join(lines) + "\n"


# Rows of README's table: a backbone of the benchmarks, the config with the paper's accuracy, and what it is for. Those that the
# run of the benchmarks does not have are left out.
CHOICES = (
    ("MILA-T", "mask_rcnn_mila_t_1x_coco", "a detector to start from that its authors have trained on COCO"),
    ("H-ViT3-T", "mask_rcnn_h_vit3_t_1x_coco", "the same, with test-time training as attention"),
    ("FLatten-Swin-T", "mask_rcnn_flatten_swin_t_3x_coco", "a Swin config to make faster, from Swin's own weights"),
    ("iViT-T", "mask_rcnn_ivit_t_3x_coco", "large images and little memory, from CAFormer's weights"),
    ("HyLiSANet-S", "mask_rcnn_hylisanet_s_1x_coco", "the best box AP at 1x; needs its own ImageNet pretraining"),
    ("LiSANet-S", "mask_rcnn_lisanet_s_1x_coco", "structure-aware attention in every stage"),
)


def choices_to_markdown(entries: Sequence[Entry], measured: dict, shares: dict[str, str]) -> str:
    """Return the rows of README's table; ``shares`` is the part of each backbone that published weights fill."""
    by_name = {entry.name: entry for entry in entries}
    lines = [
        "| you want | backbone | time and memory over Swin-T's, 224² | 800x1344 | training, 512² | published weights fill | "
        "Mask R-CNN, box AP (paper) |",
        "|" + "---|" * 7,
    ]
    for backbone, config, purpose in CHOICES:
        if (backbone, "800x1344") not in measured["backbones"]:
            continue
        ratios = [
            " / ".join(
                f"{rows[backbone, case][key] / rows[BASELINE, case][key]:.2f}" for key in ("seconds", "peak_bytes")
            )
            for rows, case in (
                (measured["backbones"], "224x224"),
                (measured["backbones"], "800x1344"),
                (measured["training"], "512x512"),
            )
        ]
        schedule = config.split("_")[-2]
        ap = read_metrics(by_name[config].paper)["box AP"]
        lines.append(f"| {purpose} | {backbone} | {' | '.join(ratios)} | {shares[backbone]} | {ap} ({schedule}) |")
    return "\n".join(lines) + "\n"
