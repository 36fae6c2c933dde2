import json

import pytest
from torch import nn

from research.paper_tables import Row, evaluate, load_table, macs, papers, params, to_json, to_markdown


@pytest.fixture
def row():
    def make(*cells):
        return Row("Table 1", "layer", lambda: nn.Conv2d(3, 1000, 1, bias=False), (3, 10, 100), cells)

    return make


@pytest.mark.parametrize("paper", papers())
def test_every_judged_cell_lies_within_its_tolerance(paper):
    wrong = [result for result in evaluate(load_table(paper).ROWS) if result.within is False]
    assert not wrong


@pytest.mark.parametrize(
    ("cell", "within"),
    [
        (params("3.0 k"), True),
        (params("2.9 k"), False),
        (params("3 k"), True),
        (params("2.96 k"), False),  # 1.4%: more than the tolerance and than half of the last digit
        (params("2.9 k", tolerance=None), None),
        (macs("2.95 M"), True),
        (macs("2.9 M"), False),
        (macs("2.95 M", 2.9), False),  # near the paper, but not what the reading gives
    ],
)
def test_judgement(row, cell, within):
    (result,) = evaluate([row(cell)])
    assert result.ours == pytest.approx(3.0)
    assert result.within is within


def test_renderings(row):
    results = evaluate([row(params("2.9 k", note="a typo"), macs("3 M"))])
    text = to_markdown("Title", "Words.", results)
    assert text.startswith("# Title\n\nWords.\n\n1 of 2 judged")
    assert "| layer | params | all | 2.9 k | 3 k | +3.4% | **✗** | a typo |" in text
    assert json.loads(json.dumps(to_json(results)))[1]["within"] is True


def test_unknown_paper():
    with pytest.raises(ValueError, match="no table of paper 'nothing'"):
        load_table("nothing")
