"""The papers' parameter and FLOPs columns beside this package's own, from tables of rows that are data.

A paper is a module ``research.tables.<paper>`` with a docstring (the page's introduction) and ``ROWS``; a row
says what the paper prints and how to build the model. Another paper is another such file.
"""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from mmengine.config import Config
from mmengine.registry import DefaultScope
from torch import nn
from tqdm import tqdm

from mmlisa import config_path
from mmlisa.complexity import CONVENTIONS, Complexity, count, forward_tables
from mmlisa.registry import MODELS

_UNITS = {"k": 1e3, "M": 1e6, "G": 1e9}
_BACKBONE_LIBRARY = "mmpretrain"  # bare modules and backbones are built in its scope: it knows most


@dataclass(frozen=True)
class Cell:
    """One number of a paper.

    Attributes:
        quantity: ``'params'`` or ``'MACs'``.
        paper: what the paper prints, with its unit: ``'3.9 G'``. Half of its last digit is always tolerated.
        reading: the count that this package's reading of the paper should give, in the same unit, where it was derived
            independently; ours must lie within 1% of it.
        convention: a name of :data:`mmlisa.complexity.CONVENTIONS`.
        tolerance: largest relative difference from the paper; None reports the cell without judging it.
        note: why it differs, or where the paper contradicts itself.
    """

    quantity: str
    paper: str
    reading: float | None = None
    convention: str = "products"
    tolerance: float | None = 0.03
    note: str = ""


def params(paper: str, reading: float | None = None, *, tolerance: float | None = 0.01, **options: Any) -> Cell:
    """A cell of a #params column, within 1% of the paper unless told otherwise."""
    return Cell("params", paper, reading, tolerance=tolerance, **options)


def macs(paper: str, reading: float | None = None, **options: Any) -> Cell:
    """A cell of a FLOPs column, within 3% of the paper unless told otherwise."""
    return Cell("MACs", paper, reading, **options)


@dataclass(frozen=True)
class Row:
    """A model of a table.

    Attributes:
        table: its table in the paper: ``'Table 5'``.
        label: the paper's name for it.
        model: a config of this package (``'mask_rcnn_….py'``), a model dict (``type`` with its scope), or a function that
            builds a module.
        input: shape of its input without the batch: ``(3, 224, 224)``.
        cells: what the paper prints about it.
    """

    table: str
    label: str
    model: str | dict[str, Any] | Callable[[], nn.Module]
    input: tuple[int, ...]
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Result:
    """A cell beside this package's count, both in the paper's unit; ``within`` is None where the cell is only reported."""

    table: str
    label: str
    quantity: str
    counted: str
    paper: str
    ours: float
    unit: str
    difference: float
    reading: float | None
    within: bool | None
    note: str


def papers() -> list[str]:
    """Names of the papers that have a table."""
    return sorted(path.stem for path in Path(__file__).with_name("tables").glob("[!_]*.py"))


def load_table(paper: str) -> ModuleType:
    """The table module of a paper.

    Raises:
        ValueError: no such paper.
    """
    if paper not in papers():
        raise ValueError(f"there is no table of paper {paper!r}; there are {papers()}")
    return import_module(f"research.tables.{paper}")


def build_on_meta(model: str | dict[str, Any] | Callable[[], nn.Module]) -> nn.Module:
    """Builds the model of a :class:`Row` without memory or initialisation."""
    if callable(model):
        _import_models(_BACKBONE_LIBRARY)
        with torch.device("meta"):
            return model()
    scope = _BACKBONE_LIBRARY
    if isinstance(model, str):
        config = Config.fromfile(config_path(model))
        scope, model = config.default_scope, config.model
    _import_models(scope)
    with DefaultScope.overwrite_default_scope(scope), torch.device("meta"):
        return MODELS.build(model)


def evaluate(rows: Iterable[Row]) -> list[Result]:
    """Builds and counts every row."""
    rows = tqdm(list(rows), "models", leave=False, disable=None)
    return [_compare(row, cell, counts) for row in rows for counts in [_count(row)] for cell in row.cells]


def to_markdown(title: str, introduction: str, results: list[Result]) -> str:
    """One section per table of the paper."""
    judged = [result for result in results if result.within is not None]
    lines = [
        f"# {title}",
        "",
        introduction.strip(),
        "",
        f"{sum(r.within for r in judged)} of {len(judged)} judged cells lie within their tolerance; "
        f"{len(results) - len(judged)} more are reported only (–).",
    ]
    for table in dict.fromkeys(result.table for result in results):
        lines += [
            "",
            f"## {table}",
            "",
            "| model | quantity | counted | paper | ours | difference | | note |",
            "|" + "---|" * 8,
        ]
        for r in (result for result in results if result.table == table):
            verdict = {True: "✓", False: "**✗**", None: "–"}[r.within]
            ours = f"{r.ours:.4g} {r.unit}"
            columns = (r.label, r.quantity, r.counted, r.paper, ours, f"{r.difference:+.1%}", verdict, r.note)
            lines.append(f"| {' | '.join(columns)} |")
    return "\n".join(lines) + "\n"


def to_json(results: list[Result]) -> list[dict[str, Any]]:
    """One record per cell."""
    return [asdict(result) for result in results]


@cache
def _import_models(scope: str) -> None:
    """Imports what registers models before anything is built on the meta device: importing creates tensors, too."""
    import_module(f"{scope}.models")
    MODELS.import_from_location()


def _count(row: Row) -> Complexity:
    model = build_on_meta(row.model)
    return count(model, torch.empty(1, *row.input, device="meta"), forward=forward_tables)


def _compare(row: Row, cell: Cell, counts: Complexity) -> Result:
    printed, unit = cell.paper.split()
    number = counts.params(cell.convention) if cell.quantity == "params" else counts.macs(cell.convention)
    ours, paper = number / _UNITS[unit], float(printed)
    counted = cell.convention
    if cell.quantity == "params":
        counted = "weights" if CONVENTIONS[counted].layer_weights_only else "all"
    within = None
    if cell.tolerance is not None:
        half_digit = 0.5 * 10 ** -len(printed.partition(".")[2])
        within = abs(ours - paper) <= max(cell.tolerance * paper, half_digit)
        if cell.reading is not None:
            within &= abs(ours - cell.reading) <= 0.01 * cell.reading
    return Result(
        row.table,
        row.label,
        cell.quantity,
        counted,
        cell.paper,
        ours,
        unit,
        ours / paper - 1,
        cell.reading,
        within,
        cell.note,
    )
