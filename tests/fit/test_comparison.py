"""Tiles against one pass: the rows, a test that fails, and the recommendation."""

import json

import pytest

from mmlisa.fit.comparison import compare, recommend


def metrics(ap, time=1.0):
    return dict(AP=ap, time=time)


@pytest.mark.parametrize(
    ("results", "number", "chosen"),
    [
        ({"tiles": metrics(0.5, 3), "one": metrics(0.4, 1)}, 5, "tiles, the best AP: AP 0.500 in 3.00 s"),
        (
            {"tiles": metrics(0.5, 3), "one": metrics(0.495, 1)},
            5,
            "one, the fastest within 0.01 AP of the best (tiles)",
        ),
        ({"tiles": metrics(0.5, 3)}, 4, "4 validation images are too few"),
    ],
)
def test_recommendation(results, number, chosen):
    assert chosen in recommend(results, number)


def test_sizes_up_to_the_largest_image(tmp_path):
    """A pass that fails is a row; tiles that fail are an error."""
    (tmp_path / "data").mkdir()
    images = [dict(width=900, height=1400), dict(width=640, height=480)]
    (tmp_path / "data" / "val.json").write_text(json.dumps(dict(images=images)))
    (tmp_path / "plain.py").write_text(
        "side = 320\nmodel = dict(test_cfg=dict(rpn=dict(nms_pre=500, max_per_img=200)))"
    )
    seen, failing = [], "1333"

    def run(name, config, model, *words, log):
        seen.append((name, config.name, *words[3:-3]))
        if failing in str(log):
            raise ChildProcessError
        (log.parent / "1").mkdir(parents=True, exist_ok=True)
        values = {f"coco/bbox_{name}": 0.1 for name in ("mAP", "mAP_50", "mAP_s", "mAP_m")} | {"coco/bbox_mAP_l": -1}
        (log.parent / "1" / "1.json").write_text(json.dumps(values | {"time": 1}))

    table = compare(tmp_path, run)["table"]
    scale, rpn = "test_dataloader.dataset.pipeline.1.scale=", "model.test_cfg.rpn"
    assert seen == [
        ("test", "config.py"),
        ("test", "plain.py", f"{scale}(640,640)", f"{rpn}.nms_pre=2000", f"{rpn}.max_per_img=800"),  # four tiles
        ("test", "plain.py", f"{scale}(1333,1333)", f"{rpn}.nms_pre=9000", f"{rpn}.max_per_img=3600"),
    ]
    assert [row[0] for row in table[1:]] == ["tiles of 320 pixels", "one pass at 640 pixels", "one pass at 1333 pixels"]
    assert table[1][1:] == ["0.100", "0.100", "0.100", "0.100", "-", "1.00"]
    assert "failed" in table[3][-1]
    failing = "tiles"
    with pytest.raises(ChildProcessError):
        compare(tmp_path, run)
