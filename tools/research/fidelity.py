"""Verdicts of docs/fidelity.md, derived from the evidence that each row of ``tables/fidelity.csv`` names.

``evidence`` has one or more of these, separated by semicolons:

``cells: TABLE``          the cells of a table of the paper's page, or of rows whose label begins so: ``cells: Table 5 / LiSANet``
``recipe``                tests/helpers/recipes states the recipe of every config of the row
``as: ITEM``              the row contains another item of its paper, and deviates if that does
``test: PATH::NAME``      a test of the source with an oracle from outside: a formula, a library, a closed form
``command: MODULE NAME``  a command, suite or figure that makes the item here
``untestable``            it takes a full training, a GPU, or a number or machine that the paper does not give

``deviation`` says how the row differs from the text, ``note`` what a reader should know beside it. Nobody writes a verdict:

* *absent*: no source
* *untestable*
* *deviates*: a deviation, of the row or of one that it contains; cells further than 1 % from the print, or sizes that the
  paper leaves open
* *within 1 %*: some cells do not round to the print
* *exact*: everything else
"""

import csv
import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROWS = Path(__file__).with_name("tables") / "fidelity.csv"
_PAGES = {"LiSA journal": "lisa", "LiSA v1": "lisa", "FLatten": "flatten", "Castling-ViT": "castling", "iViT": "ivit"}
ROUNDS, NEAR, OPEN = "✓", "≈", "–"


@dataclass(frozen=True)
class Row:
    """An item of a paper, what reproduces it here (configs and files), and the evidence; see the module."""

    paper: str
    item: str
    source: str
    evidence: str
    deviation: str
    note: str

    @property
    def sources(self) -> list[str]:
        return [source for source in self.source.split(", ") if source]

    def files(self) -> list[Path]:
        """The files of the source; ``*`` and ``[…]`` are patterns, and configs need no folder in front.

        Raises:
            FileNotFoundError: nothing has such a name.
        """
        found = []
        for source in self.sources:
            matching = [path for start in (ROOT, ROOT / "configs") for path in sorted(start.glob(source))]
            if not matching:
                raise FileNotFoundError(f"{self.paper}, {self.item}: nothing is called '{source}'")
            found += matching
        return found

    @property
    def kinds(self) -> list[tuple[str, str]]:
        """Kind and argument of each evidence."""
        parts = (part.partition(":") for part in self.evidence.split("; ") if part)
        return [(kind, argument.strip()) for kind, _, argument in parts]

    def cells(self) -> list["Cell"]:
        """The cells that the evidence names.

        Raises:
            ValueError: the evidence names a table or label that the page lacks.
        """
        found = []
        for kind, argument in self.kinds:
            if kind == "cells":
                table, _, label = argument.partition(" / ")
                chosen = [c for c in read_cells(self.paper) if c.table == table and re.match(label, c.label)]
                if not chosen:
                    raise ValueError(f"{self.paper}, {self.item}: its page has no cells {argument!r}")
                found += chosen
        return found

    def verdict(self) -> str:
        if not self.source:
            return f"absent: {self.deviation}"
        if ("untestable", "") in self.kinds:
            return f"untestable: {self.deviation}"
        cells = self.cells()
        signs = Counter(cell.sign for cell in cells)
        far = [abs(cell.difference) for cell in cells if cell.sign not in (ROUNDS, NEAR, OPEN)]
        reasons = [self.deviation] if self.deviation else []
        items = {row.item: row for row in read_rows() if row.paper == self.paper}
        contained = [argument for kind, argument in self.kinds if kind == "as"]
        reasons += [f"as {item}" for item in contained if items[item].verdict().startswith("deviates")]
        if far:
            worst = f"{max(far):.1f} %" if len(far) == 1 else f"{min(far):.1f} to {max(far):.1f} %"
            reasons.append(f"{len(far)} of {len(cells)} cells off by {worst}")
        if signs[OPEN]:
            reasons.append(f"{signs[OPEN]} of {len(cells)} cells with sizes that the paper leaves open")
        if reasons:
            if cells and not far and not signs[OPEN]:
                reasons.append(f"{signs[ROUNDS]} of {len(cells)} cells round")
            kind = f"deviates: {'; '.join(reasons)}"
        elif signs[NEAR]:
            kind = f"within 1 %: {signs[ROUNDS]} of {len(cells)} cells round"
        else:
            kind = "exact" + (f": all {len(cells)} cells round" if cells else "")
        return kind + (f" ({self.note})" if self.note else "")

    @property
    def kind(self) -> str:
        """The verdict without its reasons."""
        return self.verdict().partition(":")[0].partition(" (")[0]


@dataclass(frozen=True)
class Cell:
    """A cell of a paper's table: its sign there, and how far our count is from the print, in percent."""

    table: str
    label: str
    sign: str
    difference: float


def read_rows() -> list[Row]:
    return [Row(**row) for row in csv.DictReader(ROWS.read_text(encoding="utf-8").splitlines())]


@cache
def read_cells(paper: str) -> list[Cell]:
    """Read the cells of a paper from the last section of its page."""
    table, cells, page = "", [], ROOT / "docs" / f"{_PAGES[paper]}.md"
    for line in page.read_text(encoding="utf-8").partition("## Parameters and FLOPs")[2].splitlines():
        if line.startswith("### "):
            table = line[4:]
        elif table and line.startswith("| ") and not line.startswith("| model"):
            label, _, _, _, _, difference, sign, _ = line.removeprefix("| ").removesuffix(" |").split(" | ", 7)
            cells.append(Cell(table, label, sign.strip("*()"), float(difference.rstrip("%"))))
    return cells


def count_verdicts(rows: list[Row]) -> dict[str, int]:
    """Return the number of rows of each verdict, without its reasons."""
    counts = Counter(row.kind for row in rows)
    return dict(sorted(counts.items()))


def to_markdown() -> str:
    """Return a section per paper: each item, what reproduces it, the evidence, and the verdict."""
    page, rows = "", read_rows()
    for paper in dict.fromkeys(row.paper for row in rows):
        chosen = [row for row in rows if row.paper == paper]
        counts = count_verdicts(chosen)
        page += f"\n## {paper}\n\n{', '.join(f'{number} {kind}' for kind, number in counts.items())}.\n\n"
        page += "| item | config or file | evidence | verdict |\n|---|---|---|---|\n"
        for row in chosen:
            columns = (row.item, row.source, row.evidence, row.verdict())
            page += f"| {' | '.join(column.replace('|', '/') for column in columns)} |\n"
    return page
