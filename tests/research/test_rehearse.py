"""Families of configs, and a quarter of an hour of the dress rehearsal each night, others each day."""

import datetime
import json
import subprocess
import sys
from pathlib import Path

import pytest

from research import rehearse
from research.rehearse import Rehearsal, find_contradiction, find_families

ROOT = Path(__file__).parents[2]


def test_the_smallest_of_each_family_stands_for_the_others():
    families = find_families()
    assert families["picodet_castling_lcnet_s_320_coco"] == [
        "picodet_castling_lcnet_s_416_coco",
        "picodet_castling_lcnet_m_416_coco",
        "picodet_castling_lcnet_l_416_coco",
    ]
    assert families["mask_rcnn_flatten_swin_t_1x_coco"] == [
        "mask_rcnn_flatten_swin_t_3x_coco",
        "mask_rcnn_flatten_swin_t_host_1x_coco",
    ]


ROW = dict(
    config="classifier_ivit_t_300e_imagenet",
    commit="c0ffee1",
    date="2026-11-28",
    options=[],
    train=dict(losses=[3.0, 2.0], metric={"accuracy/top1": 25.0}),
    test=dict(matched="all 6.4 M values match", metric={"accuracy/top1": 25.0}),
    resume=dict(losses=[2.0, 1.0]),
)


@pytest.mark.parametrize(
    ("step", "change", "contradiction"),
    [
        ("resume", dict(losses=[float("nan"), 1.0]), "train: a loss is not finite"),
        ("resume", dict(losses=[3.0, 2.0, 2.0, 1.0]), "train --resume: 4 iterations, where 2 were left"),
        ("train", dict(losses=[]), "train --resume: 2 iterations, where 0 were left"),
        (
            "test",
            dict(metric={"accuracy/top1": 99.0}),
            "test: {'accuracy/top1': 99.0}, where the validation has {'accu",
        ),
        ("test", dict(matched="3 of 140"), "test: of the checkpoint, 3 of 140 matched"),
        ("test", dict(matched="backbone 6.1 M of 6.4 M values"), "test: of the checkpoint, backbone 6.1 M of 6.4 M"),
    ],
)
def test_a_row_that_contradicts_itself_did_not_pass(monkeypatch, tmp_path, step, change, contradiction):
    assert find_contradiction(ROW) is None
    row = ROW | {step: ROW[step] | change}
    assert find_contradiction(row).startswith(contradiction)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "rehearsal.jsonl").write_text(json.dumps(row))
    monkeypatch.setattr(rehearse, "find_families", lambda: {})
    monkeypatch.setattr(rehearse, "CONFIGS", tmp_path / "configs")
    page = rehearse.to_markdown()
    assert "1 configs ran, 0 of them without a failure" in page
    assert f"| c0ffee1, 2026-11-28 | {contradiction}" in page


def test_rows_of_the_page():
    """Whoever adds a failure, or takes one away, changes this list."""
    rows = Rehearsal(ROOT / "docs").done()
    failed = {name for name, row in rows.items() if row.get("error") or find_contradiction(row)}
    assert failed == {"mask2former_castling_vit_b_160k_ade20k"}
    untested = {name for name, row in rows.items() if "test" not in row}
    assert untested - failed == {"classifier_hylisanet_s_90e_imagenet21k"}  # it has no data to test on


@pytest.mark.nightly
def test_a_quarter_of_an_hour(tmp_path):
    names = [*find_families()]
    first = datetime.date.today().toordinal() * 12 % len(names)
    command = [sys.executable, "tools/research/rehearse.py", "--root", str(tmp_path), "--seconds", "900"]
    subprocess.run([*command, *names[first:], *names[:first]], cwd=ROOT, check=True)
    rows = Rehearsal(tmp_path).done()
    assert rows
    assert not {name: row["error"] for name, row in rows.items() if "error" in row}
    assert all(row["commit"] and row["date"] for row in rows.values())
