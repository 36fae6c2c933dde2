"""Measurements in ``docs/benchmarks/*.json``: what a page may show of them, and what follows from them.

The files have what was measured. Ratios are computed when a page is written, so that a ratio always belongs to its times.
"""

import json
import re
from pathlib import Path
from typing import Any

Row = dict[str, Any]
FOLDER = Path(__file__).parents[2] / "docs" / "benchmarks"
# The ratios of networks are to the first, those of operators to the second.
BASELINE, PSEUDO_CODE = "Swin-T", "pseudo-code"


def read(file: Path) -> dict[str, Any]:
    """Return what ``tools/benchmark.py`` wrote of a suite, with :func:`with_ratios`.

    Raises:
        ValueError: the code is not that of a commit, or a median lies outside of its quartiles.
    """
    measured = json.loads(file.read_text(encoding="utf-8"))
    check_commit(measured["commit"], file.name)
    for row in measured["rows"]:
        if not 0 < row["low"] <= row["seconds"] <= row["high"] < float("inf"):
            raise ValueError(
                f"{file.name}, {row['case']}, {row['name']}: the median of {row['seconds']} s is outside of its quartiles, "
                f"{row['low']} and {row['high']}; measure again"
            )
    return measured | dict(rows=with_ratios(measured["rows"]))


def check_commit(commit: str, place: str) -> None:
    """Refuse what is not the code of a commit.

    Raises:
        ValueError: the tree had changes, or it was not a clone.
    """
    if not re.fullmatch("[0-9a-f]{7,40}", commit):
        raise ValueError(f"{place}: '{commit}' is not a commit; measure in a clone without changes")


def describe(measured: dict[str, Any]) -> str:
    """Return where and when a suite was measured, and what differs from the code of today, if the file says so."""
    parts = [f"commit {measured['commit']}", measured.get("date"), measured["machine"], measured.get("note")]
    return ", ".join(part for part in parts if part)


def with_ratios(rows: list[Row]) -> list[Row]:
    """Return the rows of a suite with the ratios to their baseline, if it was measured, and networks with the time per pixel."""
    by_key = {(row["case"], row.get("mode"), row["name"]): row for row in rows}
    return [row | _derive(row, by_key) for row in rows]


def _derive(row: Row, by_key: dict[tuple[str, str | None, str], Row]) -> Row:
    derived = {}
    case, mode = row["case"], row.get("mode")
    if base := by_key.get((case, mode, BASELINE)):
        derived["ratio"] = row["seconds"] / base["seconds"]
        if "saved_bytes" in row:
            derived["saved_ratio"] = row["saved_bytes"] / base["saved_bytes"]
    if mode:  # operators
        base = by_key[case, mode, PSEUDO_CODE]
        derived["speedup"] = base["seconds"] / row["seconds"]
        derived["memory_ratio"] = row["peak_bytes"] / max(1, base["peak_bytes"])
    if "bf16_seconds" in row:
        derived["bf16_ratio"] = row["bf16_seconds"] / row["seconds"]
    if "tokens" not in row and (size := re.fullmatch(r"(\d+)x(\d+)", case)):
        derived["ns_per_pixel"] = row["seconds"] / (int(size[1]) * int(size[2])) * 1e9
    return derived
