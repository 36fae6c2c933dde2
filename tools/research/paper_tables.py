"""The papers' parameter and FLOPs columns beside the counts of this package.

A paper is a module ``research.tables.<paper>``: its docstring is the introduction of the page, ``ROWS`` holds what the paper
prints and how to build each model, and ``ABSENT`` lists the tables and figures that no command here reproduces.
"""

from collections import Counter
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
from mmlisa.complexity import Complexity, count, forward_tables
from mmlisa.registry import MODELS

from .conventions import CONVENTIONS

_UNITS = {"k": 1e3, "M": 1e6, "G": 1e9}
# Largest relative difference of a count that agrees with the paper; half of the last printed digit, if that is more.
TOLERANCES = {"params": 0.01, "MACs": 0.03}
SYMBOLS = {"agrees": "✓", "explained": "(✗)", "unexplained": "**✗**", "reported": "–"}
_BACKBONE_LIBRARY = "mmpretrain"  # the scope of modules and backbones without a config


@dataclass(frozen=True)
class Cell:
    """A number of a paper.

    Attributes:
        quantity: ``'params'`` or ``'MACs'``.
        paper: the number with its unit, as the paper prints it: ``'3.9 G'``.
        reading: the count in the same unit that the paper's text gives, derived independently of the code.
        convention: a name of :data:`research.conventions.CONVENTIONS`.
        judged: False reports the cell without comparing it, because the paper leaves the model's sizes open.
        explained: the paper's number differs for the reason that the note states. It does not change the tolerance.
        note: why the number differs, or where the paper contradicts itself.
    """

    quantity: str
    paper: str
    reading: float | None = None
    convention: str = "products"
    judged: bool = True
    explained: bool = False
    note: str = ""


def params(paper: str, reading: float | None = None, **options: Any) -> Cell:
    """A cell of a #params column."""
    return Cell("params", paper, reading, **options)


def macs(paper: str, reading: float | None = None, **options: Any) -> Cell:
    """A cell of a FLOPs column."""
    return Cell("MACs", paper, reading, **options)


@dataclass(frozen=True)
class Row:
    """A model of a table.

    Attributes:
        table: number of the table: ``'Table 5'``.
        label: name of the model in the paper.
        model: a config of this package (``'mask_rcnn_….py'``), a model dict (``type`` with its scope), or a function that
            builds a module.
        input: shape of the input without the batch: ``(3, 224, 224)``.
        cells: the numbers of the model.
    """

    table: str
    label: str
    model: str | dict[str, Any] | Callable[[], nn.Module]
    input: tuple[int, ...]
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Result:
    """A cell beside this package's count, both in the paper's unit; ``status`` is a key of :data:`SYMBOLS`."""

    table: str
    label: str
    quantity: str
    counted: str
    paper: str
    ours: float
    unit: str
    difference: float
    reading: float | None
    status: str
    note: str


def papers() -> list[str]:
    """Return the names of the papers that have a table."""
    return sorted(path.stem for path in Path(__file__).with_name("tables").glob("[!_]*.py"))


def load_table(paper: str) -> ModuleType:
    """Import the table module of a paper.

    Raises:
        ValueError: no such paper.
    """
    if paper not in papers():
        raise ValueError(f"there is no table of paper {paper!r}; there are {papers()}")
    return import_module(f"research.tables.{paper}")


def build_on_meta(model: str | dict[str, Any] | Callable[[], nn.Module]) -> nn.Module:
    """Build the model of a :class:`Row` on the meta device."""
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
    """Build and count every row."""
    rows = tqdm(list(rows), "models", leave=False, disable=None)
    return [_compare(row, cell, counts) for row in rows for counts in [_count(row)] for cell in row.cells]


def to_markdown(paper: ModuleType, results: list[Result]) -> str:
    """Return the page of a paper: the counts, a section per table, and the list of absent tables."""
    number = Counter(result.status for result in results)
    lines = [
        f"# {paper.TITLE}",
        "",
        paper.__doc__.strip(),
        "",
        "A count agrees with the paper (✓) within 1 % of the parameters, 3 % of the multiply-accumulates, or half of the last",
        "printed digit.",
        "",
        "| cells | agree ✓ | differ for a known reason (✗) | unexplained **✗** | not comparable – |",
        "|---|---|---|---|---|",
        f"| {len(results)} | {' | '.join(str(number[status]) for status in SYMBOLS)} |",
    ]
    for table in dict.fromkeys(result.table for result in results):
        lines += [
            "",
            f"## {table}",
            "",
            "| model | quantity | counted | paper | ours | difference | | note |",
            "|" + "---|" * 8,
        ]
        lines += [to_line(result) for result in results if result.table == table]
    lines += ["", "## Absent", "", "No command here reproduces these tables and figures of the paper.", ""]
    lines += ["| table or figure | reason |", "|---|---|", *(f"| {what} | {reason} |" for what, reason in paper.ABSENT)]
    return "\n".join(lines) + "\n"


def to_line(r: Result) -> str:
    """Return the row of a cell in the page's table."""
    ours = f"{r.ours:.4g} {r.unit}"
    columns = (r.label, r.quantity, r.counted, r.paper, ours, f"{r.difference:+.1%}", SYMBOLS[r.status], r.note)
    return f"| {' | '.join(columns)} |"


def to_json(results: list[Result]) -> list[dict[str, Any]]:
    """Return a record per cell."""
    return [asdict(result) for result in results]


@cache
def _import_models(scope: str) -> None:
    """Import the modules that register models outside the meta device, because some create tensors when they are imported."""
    import_module(f"{scope}.models")
    MODELS.import_all()


def _count(row: Row) -> Complexity:
    model = build_on_meta(row.model)
    return count(model, torch.empty(1, *row.input, device="meta"), forward=forward_tables)


def _compare(row: Row, cell: Cell, counts: Complexity) -> Result:
    printed, unit = cell.paper.split()
    convention = CONVENTIONS[cell.convention]
    number = convention.params(counts) if cell.quantity == "params" else convention.macs(counts)
    ours, paper = number / _UNITS[unit], float(printed)
    counted = cell.convention
    if cell.quantity == "params":
        counted = "weights" if convention.layer_weights_only else "all"
    half_digit = 0.5 * 10 ** -len(printed.partition(".")[2])
    if not cell.judged:
        status = "reported"
    elif abs(ours - paper) <= max(TOLERANCES[cell.quantity] * paper, half_digit):
        status = "agrees"
    else:
        status = "explained" if cell.explained else "unexplained"
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
        status,
        cell.note,
    )
