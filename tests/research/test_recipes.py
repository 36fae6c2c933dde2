"""The table of docs/reproduce.md."""

import re
from pathlib import Path

import pytest

from research.recipes import on_gpus

PAGE = (Path(__file__).parents[2] / "docs" / "reproduce.md").read_text(encoding="utf-8")
ROWS = {
    columns[1].strip("`"): columns
    for line in PAGE.splitlines()
    if (columns := line.removeprefix("| ").removesuffix(" |").split(" | "))[1:2] and columns[1].startswith("`")
}


@pytest.mark.parametrize(
    ("batch", "total", "may_accumulate", "flag"),
    [
        (128, 1024, True, "–"),
        (64, 1024, True, "`--cfg-options optim_wrapper.accumulative_counts=2`"),
        (64, 1024, False, "`--batch 128`"),
        (4, 16, True, "`--batch 2`"),
    ],
)
def test_the_batch_of_eight_gpus(batch, total, may_accumulate, flag):
    assert on_gpus(batch, total, may_accumulate) == flag


def test_a_row_starts_from_another_row():
    starts = {columns[2] for columns in ROWS.values()} - {"random weights", "timm:vit_base_patch16_224.mae"}
    assert len(starts) > 20
    assert starts <= ROWS.keys()


def test_no_row_averages_several_times_a_step():
    """MMEngine averages weights after every iteration, also after one that only adds gradients."""
    assert re.search("accumulative_counts", PAGE)
    averaged = [columns for columns in ROWS.values() if columns[6] == "averaged"]
    assert len(averaged) > 20
    assert not [columns for columns in averaged if "accumulative_counts" in columns[4]]
