"""The papers' parameter and FLOPs columns beside the counts of this package.

A paper is a file ``tables/<paper>.yml``. A row has a ``label``, ``params`` and ``macs``, and one of these models:

``config``   name of a config, with new values in ``options``; ``trained`` is the config of the row's accuracy, if another
``block``    options of an attention in a block of 192 channels and 12 heads with a plain MLP (LiSA, Table 4)

``params`` and ``macs`` are the number as the paper prints it (``3.9 G``), or these:

``paper``       the number
``reading``     the count in the same unit that the paper's text gives, derived without the code
``convention``  see :data:`research.conventions.CONVENTIONS`; by default, the table's, or ``products``
``judged``      false if the paper leaves the sizes of the model open: the cell is reported and not compared
``explained``   true if the note states why the paper's number differs; the tolerance stays
``note``        why the number differs, or where the paper contradicts itself

``accuracies`` has those that headers of configs quote, and ``plots`` the paper's plots of them over the work.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import yaml
from mmengine.config import Config
from mmengine.registry import DefaultScope
from torch import Tensor, nn
from tqdm import tqdm

from mmlisa import config_path
from mmlisa.models.attention import build_attention
from mmlisa.models.layers.blocks import Block
from mmlisa.models.layers.tokens import to_tokens
from mmlisa.registry import MODELS

from .conventions import CONVENTIONS, Counts, count

FOLDER = Path(__file__).with_name("tables")
_UNITS = {"k": 1e3, "M": 1e6, "G": 1e9}
# Largest relative difference of a count that is near the paper's but does not round to it.
TOLERANCES = {"params": 0.01, "macs": 0.03}
SYMBOLS = {
    "rounds to the print": "✓",
    "within 1 %": "≈",
    "within 3 %": "~",
    "differs for a known reason": "(✗)",
    "unexplained": "**✗**",
    "not comparable": "–",
}


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


def load_table(paper: str) -> dict[str, Any]:
    """Read the table file of a paper, a name of ``tables/*.yml`` without its ending."""
    return yaml.safe_load((FOLDER / f"{paper}.yml").read_text(encoding="utf-8"))


class _BlockOnMap(nn.Module):
    def __init__(self, attention: dict[str, Any], grid: tuple[int, int]) -> None:
        super().__init__()
        self.block = Block(192, build_attention(attention, 192, 12, grid), mlp_ratio=4)

    def forward(self, x: Tensor) -> Tensor:
        """``x: [B, 192, H, W] -> [B, H W, 192]``."""
        return self.block(to_tokens(x), x.shape[2:])


def build_on_meta(name: str, options: dict[str, Any] | None = None) -> nn.Module:
    """Build the model of a config, with new values by dotted key, on the meta device."""
    config = Config.fromfile(config_path(name))
    config.merge_from_dict(options or {})
    _import_models(config.default_scope)
    with DefaultScope.overwrite_default_scope(config.default_scope), torch.device("meta"):
        return MODELS.build(config.model)


@cache
def _import_models(scope: str) -> None:
    """Import the modules that register models outside the meta device, because some create tensors when they are imported."""
    import_module(f"{scope}.models")
    MODELS.get("mmlisa.NoSuchName")  # is looked for in every module


def build_row(row: dict[str, Any], shape: list[int]) -> nn.Module:
    """Build the model of a row for images ``[C, H, W]``."""
    if "config" in row:
        return build_on_meta(f"{row['config']}.py", row.get("options"))
    _import_models("mmpretrain")
    with torch.device("meta"):
        return _BlockOnMap(row["block"], tuple(shape[1:]))


def evaluate(tables: Iterable[dict[str, Any]]) -> list[Result]:
    """Build and count every row of the ``tables`` of a paper."""
    rows = [(table, row) for table in tables for row in table["rows"]]
    results = []
    for table, row in tqdm(rows, "models", leave=False, disable=None):
        shape = row.get("input", table["input"])
        counts = count(build_row(row, shape), torch.empty(1, *shape, device="meta"))
        results += [_compare(table, row, quantity, counts) for quantity in TOLERANCES if quantity in row]
    return results


def _compare(table: dict[str, Any], row: dict[str, Any], quantity: str, counts: Counts) -> Result:
    cell = row[quantity] if isinstance(row[quantity], dict) else dict(paper=row[quantity])
    printed, unit = cell["paper"].split()
    counted = cell.get("convention", table.get("convention", "products"))
    convention = CONVENTIONS[counted]
    if quantity == "params":
        counted = "weights" if convention.layer_weights_only else "all"
    ours, paper = getattr(convention, quantity)(counts) / _UNITS[unit], float(printed)
    half_digit = 0.5 * 10 ** -len(printed.partition(".")[2])
    difference = ours / paper - 1
    if not cell.get("judged", True):
        status = "not comparable"
    elif abs(ours - paper) <= half_digit:
        status = "rounds to the print"
    elif abs(difference) <= TOLERANCES[quantity]:
        status = "within 1 %" if abs(difference) <= 0.01 else "within 3 %"
    else:
        status = "differs for a known reason" if cell.get("explained") else "unexplained"
    names = (table["name"], row["label"], quantity, counted, cell["paper"])
    return Result(*names, ours, unit, difference, cell.get("reading"), status, cell.get("note", ""))


def to_markdown(paper: dict[str, Any], results: list[Result]) -> str:
    """Return the last section of a paper's page: the counts, and a part per table."""
    number = Counter(result.status for result in results)
    lines = [
        "## Parameters and FLOPs",
        "",
        paper["introduction"].strip(),
        "",
        "Parameters that do not round to the print may differ by 1 %, multiply-accumulates by 3 % "
        "([all items of the papers](fidelity.md)).",
        "",
        f"| cells | {' | '.join(f'{status} {symbol}' for status, symbol in SYMBOLS.items())} |",
        "|---" * (1 + len(SYMBOLS)) + "|",
        f"| {len(results)} | {' | '.join(str(number[status]) for status in SYMBOLS)} |",
    ]
    for table in dict.fromkeys(result.table for result in results):
        lines += ["", f"### {table}", "", "| model | quantity | counted | paper | ours | difference | | note |"]
        lines.append("|" + "---|" * 8)
        for r in (result for result in results if result.table == table):
            quantity, ours = r.quantity.replace("macs", "MACs"), f"{r.ours:.4g} {r.unit}"
            columns = (r.label, quantity, r.counted, r.paper, ours, f"{r.difference:+.1%}", SYMBOLS[r.status], r.note)
            lines.append(f"| {' | '.join(columns)} |")
    return "\n".join(lines) + "\n"
