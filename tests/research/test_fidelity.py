"""The list of the papers' items: sources and evidence exist, verdicts follow from the evidence, and headers quote the tables."""

from pathlib import Path

import pytest

from helpers.recipes import stated
from model_zoo import read_header, read_metrics
from paper_tables import PAPERS
from research import fidelity
from research.fidelity import Cell, Row, read_rows
from research.paper_tables import load_table

ROOT = Path(__file__).parents[2]
ROWS = read_rows()
KNOWN = {*stated(), *(path.stem for path in (ROOT / "configs" / "ablations").iterdir())}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.paper}: {row.item}")
def test_an_item(row):
    kind, _, reason = row.verdict().partition(": ")
    assert reason or kind == "exact" or kind.startswith("exact (")
    assert row.evidence or kind == "absent"
    files = row.files()
    for evidence, argument in row.kinds:
        if evidence == "recipe":
            configs = [path.stem for path in files if path.suffix == ".py"]
            assert configs
            assert not [name for name in configs if name not in KNOWN]
        elif evidence == "test":
            path, _, test = argument.partition("::")
            assert f"def {test}(" in (ROOT / path).read_text() if test else (ROOT / path).is_file()
        elif evidence == "command":
            assert (ROOT / "tools" / f"{argument.split()[0]}.py").is_file()
        else:
            assert evidence in ("cells", "untestable", "as")
    if kind.startswith("exact"):  # counts alone show neither an equation nor a recipe
        assert {"recipe", "test", "command"} & {evidence for evidence, _ in row.kinds}
        assert not [cell for cell in row.cells() if cell.sign != "✓"]


@pytest.mark.parametrize(
    ("evidence", "deviation", "verdict"),
    [
        ("cells: Table 1 / ^a$", "", "exact: all 1 cells round"),
        ("cells: Table 1 / [ab]", "", "within 1 %: 1 of 2 cells round"),
        ("cells: Table 1 / [abc]", "", "deviates: 1 of 3 cells off by 2.5 %"),
        ("cells: Table 1 / [ce]", "", "deviates: 2 of 2 cells off by 0.4 to 2.5 %"),
        ("cells: Table 1 / [ae]", "", "deviates: 1 of 2 cells off by 0.4 %"),
        ("cells: Table 1 / [ad]", "", "deviates: 1 of 2 cells with sizes that the paper leaves open"),
        ("cells: Table 1 / ^a$", "a guess", "deviates: a guess; 1 of 1 cells round"),
        ("recipe; as: Table 1", "", "deviates: as Table 1"),
        ("recipe; as: Table 2", "", "exact"),
        ("recipe", "", "exact"),
        ("untestable", "a GPU", "untestable: a GPU"),
    ],
)
def test_a_verdict_follows_from_the_evidence(monkeypatch, evidence, deviation, verdict):
    signs = {"a": ("✓", 0.1), "b": ("≈", 0.9), "c": ("~", -2.5), "d": ("–", 5.0), "e": ("✗", 0.4)}
    cells = [Cell("Table 1", name, *values) for name, values in signs.items()]
    monkeypatch.setattr(fidelity, "read_cells", lambda paper: cells)
    rows = [
        Row("iViT", f"Table {number}", "a.py", "recipe", reason, "") for number, reason in [(1, "a guess"), (2, "")]
    ]
    monkeypatch.setattr(fidelity, "read_rows", lambda: rows)
    assert Row("iViT", "an item", "a.py", evidence, deviation, "").verdict() == verdict
    with pytest.raises(ValueError, match="Table 9"):
        Row("iViT", "an item", "a.py", "cells: Table 9", "", "").verdict()


def test_headers_of_configs_quote_the_accuracies_of_the_tables():
    paths = [path for path in (ROOT / "configs").rglob("*.py") if "_base_" not in path.parts]
    quoted = {path.stem: read_metrics(read_header(path)[1]) for path in paths}
    printed = {name: accuracy for paper in PAPERS for name, accuracy in load_table(paper)["accuracies"].items()}
    assert {name: accuracy for name, accuracy in quoted.items() if accuracy} == printed
