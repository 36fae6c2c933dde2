"""Tiles against one pass: the tests that run, their rows, and the recommendation."""

import json
import re

import pytest

from mmlisa.fit.comparison import compare

SCALE, RPN = "test_dataloader.dataset.pipeline.1.scale=", "model.test_cfg.rpn"


@pytest.mark.parametrize(
    ("number", "tested", "rows", "advice"),
    [
        (5, [(0.5, 3), (0.4, 1), (0.3, 2)], ["0.500 3.00", "0.400 1.00", "0.300 2.00"], "Recommended: tiles .*3.00 s"),
        (5, [(0.5, 3), (0.495, 1), None], ["0.500 3.00", "0.495 1.00", "- failed, perhaps"], "pass at 640 .*1.00 s"),
        (
            4,
            [(0.5, 3), (None, 1), None],
            ["0.500 3.00", "0.000 1.00", "- failed, perhaps"],
            "4 validation images are too",
        ),
    ],
)
def test_rows_and_advice(tmp_path, number, tested, rows, advice):
    """A pass that fails is a row. No metrics are a result of 0, except where no object is counted."""
    (tmp_path / "data").mkdir()
    images = [dict(width=900, height=1400), *[dict(width=640, height=480)] * (number - 1)]
    objects = [dict(area=100, iscrowd=0), dict(area=2000, iscrowd=0), dict(area=10**5, iscrowd=1)]
    (tmp_path / "data" / "val.json").write_text(json.dumps(dict(images=images, annotations=objects)))
    test_cfg = dict(rpn=dict(nms_pre=500, max_per_img=200))
    (tmp_path / "plain.py").write_text(f"side = 320\nmodel = dict(test_cfg={test_cfg})")
    seen = []

    def run(name, config, model, *words, log):
        seen.append((name, config.name, *words[3:-3]))
        if not (result := tested[len(seen) - 1]):
            raise ChildProcessError
        (log.parent / "1").mkdir(parents=True)
        names = [] if result[0] is None else ["mAP", "mAP_50", "mAP_s", "mAP_m"]
        values = {f"coco/bbox_{name}": result[0] for name in names} | dict(time=result[1])
        (log.parent / "1" / "1.json").write_text(json.dumps(values | ({"coco/bbox_mAP_l": -1} if names else {})))

    found = compare(tmp_path, run)
    assert seen == [
        ("test", "config.py"),
        ("test", "plain.py", f"{SCALE}(640,640)", f"{RPN}.nms_pre=2000", f"{RPN}.max_per_img=800"),  # four tiles
        ("test", "plain.py", f"{SCALE}(1333,1333)", f"{RPN}.nms_pre=9000", f"{RPN}.max_per_img=3600"),
    ]
    head, *table = found["table"]
    assert [row[0] for row in table] == ["tiles of 320 pixels", "one pass at 640 pixels", "one pass at 1333 pixels"]
    for row, shown in zip(table, rows, strict=True):
        value, time = shown.split(" ", 1)
        assert len(row) == len(head)
        assert row[1:6] == [value] * 4 + ["-"]
        assert row[6].startswith(time)
    assert re.search(advice, found["advice"])
