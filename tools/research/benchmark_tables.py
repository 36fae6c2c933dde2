"""The tables of README, docs/choosing.md and docs/benchmarks/README.md, from the measurements of ``docs/benchmarks/*.json``.

``tables/backbones.csv`` has what is not measured: box APs of papers, and the share of a backbone that published weights fill.
"""

import csv
from pathlib import Path
from typing import Any

from . import measured
from .measured import BASELINE, describe

BACKBONES = Path(__file__).with_name("tables") / "backbones.csv"
RIVAL = "ConvNeXt-T"  # README's ratios are over its times
LARGE = "800x1344"
SIZES = ("224x224", "640x640", LARGE)

# docs/benchmarks/README.md: ratios over Swin-T's.
COMPARED = (
    "MILA-T",
    "H-ViT3-T",
    "Pola-Swin-T",
    "HyLiSANet-S",
    "LiSANet-S",
    "FLatten-Swin-T",
    "iViT-T",
    "ConvNeXt-T",
)
RATIOS = (
    ("inference at 224x224, time", "backbones", "224x224", "seconds"),
    ("inference at 800x1344, time", "backbones", LARGE, "seconds"),
    ("the same in bfloat16 (no AMX)", "backbones", LARGE, "bf16_seconds"),
    ("in onnxruntime", "onnxruntime", LARGE, "seconds"),
    ("peak memory there, PyTorch", "backbones", LARGE, "peak_bytes"),
    ("Mask R-CNN, prediction, time", "detectors", LARGE, "seconds"),
    ("training step at 512x512, time", "training", "512x512", "seconds"),
    ("the same, tensors saved for the backward pass", "training", "512x512", "saved_bytes"),
)

Rows = dict[tuple[str, str], dict[str, Any]]


def read(suite: str) -> dict[str, Any]:
    """Return the measurements of a suite: machine, commit, rows, and in newer files the date."""
    return measured.read(measured.FOLDER / f"{suite}_cpu.json")


def rows_of(suite: str) -> Rows:
    """Return the rows of a suite by backbone and size of the image."""
    return {(row["name"], row["case"]): row for row in read(suite)["rows"]}


def _backbones() -> list[dict[str, str]]:
    return list(csv.DictReader(BACKBONES.read_text(encoding="utf-8").splitlines()))


def _milliseconds(rows: Rows, name: str, case: str, key: str = "seconds") -> str:
    return f"{rows[name, case][key] * 1e3:.0f}"


def readme() -> str:
    """Return README's table of backbones; rivals are in italics."""
    torch_rows, onnx_rows = rows_of("backbones"), rows_of("onnxruntime")
    table = (
        "| backbone | 224², ms (ratio) | 800x1344, ms (ratio) | the same in bfloat16 | in onnxruntime | peak memory "
        "| box AP (papers; Mask R-CNN unless named) | published weights fill |\n" + "|---" * 8 + "|\n"
    )
    timed = (
        (torch_rows, "224x224", "seconds"),
        (torch_rows, LARGE, "seconds"),
        (torch_rows, LARGE, "bf16_seconds"),
        (onnx_rows, LARGE, "seconds"),
    )
    for backbone in _backbones():
        if not backbone["in_readme"]:
            continue
        name, fill = backbone["backbone"], backbone["weights"]
        columns = [name.replace("ViT3", "ViT³") if fill else f"*{name}*"]
        for rows, case, key in timed:
            ratio = rows[name, case][key] / rows[RIVAL, case][key]
            columns.append(f"{_milliseconds(rows, name, case, key)} ({ratio:.2f})")
        columns += [f"{torch_rows[name, LARGE]['peak_bytes'] / 1e6:.0f} MB", backbone["box_ap"], fill]
        table += f"| {' | '.join(columns)} |\n"
    return table


def readme_footer() -> str:
    """Return the commit and the machine of README's columns."""
    torch_file, onnx_file = read("backbones"), read("onnxruntime")
    return f"*Times and memory in PyTorch: {describe(torch_file)}. In onnxruntime: {describe(onnx_file)}.*\n"


def choosing() -> str:
    """Return the table of docs/choosing.md: all backbones at three sizes, the fastest on large images first."""
    torch_rows, onnx_rows = rows_of("backbones"), rows_of("onnxruntime")
    table = "| backbone | 224x224 | 640x640 | 800x1344 | box AP on COCO (papers) |\n|---|---|---|---|---|\n"
    for backbone in sorted(_backbones(), key=lambda each: torch_rows[each["backbone"], LARGE]["seconds"]):
        name = backbone["backbone"]
        times = [f"{_milliseconds(torch_rows, name, case)} / {_milliseconds(onnx_rows, name, case)}" for case in SIZES]
        columns = [name, *times, backbone["box_ap"]]
        table += f"| {' | '.join(columns)} |\n"
    return f"{table}\n*PyTorch: {describe(read('backbones'))}. onnxruntime: {describe(read('onnxruntime'))}.*\n"


def over_swin() -> str:
    """Return the table of docs/benchmarks/README.md: times and memory over Swin-T's."""
    pixels = rows_of("pixels")

    def growth(name: str) -> float:
        return pixels[name, "1792x1792"]["ns_per_pixel"] / pixels[name, "224x224"]["ns_per_pixel"]

    lines = [["over Swin-T's", *COMPARED], ["---"] * (1 + len(COMPARED))]
    for label, suite, case, key in RATIOS:
        rows = rows_of(suite)
        lines.append([label, *(f"{rows[name, case][key] / rows[BASELINE, case][key]:.2f}" for name in COMPARED)])
    last = f"time per pixel, 1792x1792 over 224x224 (Swin-T: {growth('Swin-T'):.2f})"
    lines.append([last, *(f"{growth(name):.2f}" for name in COMPARED)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
