"""The list of the papers' items: sources and evidence exist, verdicts follow from the evidence, and headers quote the tables."""

import shlex
from importlib import import_module
from pathlib import Path

import pytest

from helpers.evidence import collected_tests, names_defined, names_used
from helpers.recipes import stated
from model_zoo import read_header, read_metrics
from paper_tables import PAPERS
from research import fidelity
from research.fidelity import Cell, Row, count_verdicts, read_rows
from research.paper_tables import load_table

ROOT = Path(__file__).parents[2]
ROWS = read_rows()
KNOWN = {*stated(), *(path.stem for path in (ROOT / "configs" / "ablations").iterdir())}
VERDICTS = {
    "LiSA journal": dict(absent=1, deviates=32, exact=7, untestable=6),
    "LiSA v1": dict(absent=1, deviates=15, exact=3, untestable=3),
    "FLatten": dict(absent=1, deviates=25, exact=4, untestable=4),
    "Castling-ViT": dict(deviates=31, untestable=6),
    "iViT": dict(absent=3, deviates=14, exact=1, untestable=6),
}
EXACT = {
    "LiSA journal": [
        "Convolutional MLP, overlapping embeddings, ratios 4,4,3,3, D, heads",
        "Table 1: computation of LiSA",
        "Table 2 (sizes)",
        "Recipe IN-1K, 300 and 150 epochs",
        "Recipe IN-21K and fine-tuning",
        "Recipe COCO",
        "Recipe ADE20K",
    ],
    "LiSA v1": ["Table 1: computation of LiSA", "Tables 2, 8a (sizes of the LiSANets)", "Recipes ImageNet, COCO"],
    "FLatten": ["Recipe IN-1K Swin", "Recipe IN-1K CSwin with EMA", "Recipes at 384 pixels", "Recipes COCO, ADE20K"],
    "iViT": ["Table 9, column 3 (Table 5)"],
}


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
            assert test in collected_tests(ROOT / path)
            defined = set().union(*map(names_defined, files))
            assert defined & names_used(ROOT / path), f"{path} uses nothing of {row.source}"
        elif evidence == "command":
            tool, *arguments = shlex.split(argument)
            import_module(tool).parse_args(arguments)
        else:
            assert evidence in ("cells", "untestable", "as")
    if kind.startswith("exact"):  # counts alone show neither an equation nor a recipe
        assert {"recipe", "test", "command"} & {evidence for evidence, _ in row.kinds}
        assert not [cell for cell in row.cells() if cell.sign != "✓"]


def test_a_changed_verdict_changes_here_too():
    """An empty deviation is a verdict."""
    rows = {paper: [row for row in ROWS if row.paper == paper] for paper in dict.fromkeys(row.paper for row in ROWS)}
    assert {paper: count_verdicts(chosen) for paper, chosen in rows.items()} == VERDICTS
    exact = {paper: [row.item for row in chosen if row.kind == "exact"] for paper, chosen in rows.items()}
    assert {paper: items for paper, items in exact.items() if items} == EXACT


def test_what_a_test_uses_of_a_source():
    used = names_used(ROOT / "tests" / "ops" / "test_references.py")
    for source, name in (
        ("mmlisa/ops/focused.py", "focused_linear"),
        ("mmlisa/ops", "hydra"),
        ("mmlisa/models/attention/pairwise.py", "structure_aware"),
        ("configs/ablations/classifier_isotropic_sa_dot_150e_imagenet.py", "structure_aware"),
        ("configs/imagenet/classifier_lisanet_i_150e_imagenet.py", "lisa"),  # by its base, arch and operator
    ):
        assert name in names_defined(ROOT / source) & used
    others = names_used(ROOT / "tests" / "test_cli.py")
    assert not names_defined(ROOT / "configs" / "imagenet" / "classifier_lisanet_i_150e_imagenet.py") & others
    assert not names_defined(ROOT / "README.md")


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
