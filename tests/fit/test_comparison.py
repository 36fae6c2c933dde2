"""Tiles against one pass: the rows, the limit of memory, and the recommendation."""

import json

import pytest

from mmlisa.fit import comparison
from mmlisa.fit.comparison import compare, recommend


def metrics(ap, time=1.0):
    return dict.fromkeys(["AP", "AP50", "small", "medium"], ap) | dict(large=-1.0, time=time, memory=1)


@pytest.mark.parametrize(
    ("results", "chosen"),
    [
        ({"tiles": metrics(0.5, 3), "one": metrics(0.4, 1)}, "tiles, the best AP: AP 0.500 in 3.00 s"),
        ({"tiles": metrics(0.5, 3), "one": metrics(0.495, 1)}, "one, the fastest within 0.01 AP of the best (tiles)"),
        ({}, "--memory"),
    ],
)
def test_recommendation(results, chosen):
    assert chosen in recommend(results)


@pytest.fixture
def run(tmp_path):
    (tmp_path / "data").mkdir()
    images = [dict(width=900, height=1400), dict(width=640, height=480)]
    (tmp_path / "data" / "val.json").write_text(json.dumps(dict(images=images)))
    (tmp_path / "plain.py").write_text(
        "side = 320\nmodel = dict(test_cfg=dict(rpn=dict(nms_pre=500, max_per_img=200)))"
    )
    return tmp_path


def test_sizes_up_to_the_largest_image_and_to_the_limit_of_memory(run, monkeypatch):
    seen = []

    def test(folder, config, options, name, memory):
        seen.append((config, *options))
        return None if "1024" in name else metrics(0.1)

    monkeypatch.setattr(comparison, "_test", test)
    table = compare(run, 2)["table"]
    scale, rpn = "test_dataloader.dataset.pipeline.1.scale=", "model.test_cfg.rpn"
    assert seen == [
        ("config.py",),
        ("plain.py", f"{scale}(640,640)", f"{rpn}.nms_pre=2000", f"{rpn}.max_per_img=800"),  # four tiles
        ("plain.py", f"{scale}(1024,1024)", f"{rpn}.nms_pre=5500", f"{rpn}.max_per_img=2200"),
    ]
    assert [row[0] for row in table[1:]] == ["tiles of 320 pixels", "one pass at 640 pixels", "one pass at 1024 pixels"]
    assert table[1][1:] == ["0.100", "0.100", "0.100", "0.100", "-", "1.00", "1.0"]
    assert table[3][-1] == "not within 2.0"


@pytest.mark.parametrize(
    ("program", "found"),
    [("bytearray(4 * 2**30)", None), ("import os; os.kill(os.getpid(), 9)", None), ("1 / 0", ChildProcessError)],
)
def test_a_process_beyond_the_limit_and_one_that_fails(run, monkeypatch, program, found):
    python = run / "python"
    python.write_text(f"#!/usr/bin/env python3\n{program}\n")
    python.chmod(0o755)
    monkeypatch.setattr(comparison.sys, "executable", str(python))
    if found is None:
        assert comparison._test(run, "plain.py", [], "one", 1) is None
    else:
        with pytest.raises(found, match=r"log\.txt"):
            comparison._test(run, "plain.py", [], "one", 1)
