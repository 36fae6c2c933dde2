"""Families of configs, and a quarter of an hour of the dress rehearsal each night, others each day."""

import datetime
import subprocess
import sys
from pathlib import Path

import pytest

from research.rehearse import Rehearsal, find_families

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


@pytest.mark.nightly
def test_a_quarter_of_an_hour(tmp_path):
    names = [*find_families()]
    first = datetime.date.today().toordinal() * 12 % len(names)
    command = [sys.executable, "tools/research/rehearse.py", "--root", str(tmp_path), "--seconds", "900"]
    subprocess.run([*command, *names[first:], *names[:first]], cwd=ROOT, check=True)
    rows = Rehearsal(tmp_path).done()
    assert rows
    assert not {name: row["error"] for name, row in rows.items() if "error" in row}
