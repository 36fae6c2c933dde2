"""The list of the papers' items: its sources exist, deviations have reasons, and headers of configs quote the tables."""

from pathlib import Path

import pytest

from mmlisa import config_path
from model_zoo import read_header, read_metrics
from pages import fidelity, read_rows
from paper_tables import PAPERS
from research.paper_tables import load_table

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("row", read_rows("fidelity"), ids=lambda row: f"{row['paper']}: {row['item']}")
def test_an_item(row):
    kind, _, reason = row["status"].partition(":")
    assert kind in ("exact", "deviates", "absent")
    assert reason or kind == "exact"
    assert row["source"] or kind == "absent"
    for source in filter(None, row["source"].split(", ")):
        assert (ROOT / source).exists() or config_path(Path(source).name)
    assert f"| {row['item'].replace('|', '/')} |" in fidelity()


def test_headers_of_configs_quote_the_accuracies_of_the_tables():
    paths = [path for path in (ROOT / "configs").rglob("*.py") if "_base_" not in path.parts]
    quoted = {path.stem: read_metrics(read_header(path)[1]) for path in paths}
    printed = {name: accuracy for paper in PAPERS for name, accuracy in load_table(paper)["accuracies"].items()}
    assert {name: accuracy for name, accuracy in quoted.items() if accuracy} == printed
