"""The list of the papers' items names configs and files that exist, and a reason for each deviation."""

from pathlib import Path

import pytest

from fidelity import read_rows, to_markdown
from mmlisa import config_path

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("row", read_rows(), ids=lambda row: f"{row['paper']}: {row['item']}")
def test_an_item(row):
    kind, _, reason = row["status"].partition(":")
    assert kind in ("exact", "deviates", "absent")
    assert reason or kind == "exact"
    for word in row["source"].replace(";", ",").split(","):
        name = word.strip().split(" ")[0]
        if name.endswith(".py") and "*" not in name and "{" not in name:
            assert (ROOT / name).is_file() or config_path(Path(name).name)
    assert f"| {row['item'].replace('|', '/')} |" in to_markdown()
