"""Families of configs, and a quarter of an hour of the dress rehearsal each night, others each day."""

import datetime
import subprocess
import sys
from pathlib import Path

import pytest

from research.rehearse import Rehearsal, choose

ROOT = Path(__file__).parents[2]


def test_the_smallest_of_each_family_is_chosen():
    names = choose()
    assert len(names) == len(set(names))
    assert {"picodet_castling_lcnet_s_320_coco", "upernet_ivit_t_160k_ade20k"} < {*names}
    larger = {
        "picodet_castling_lcnet_m_416_coco",
        "upernet_ivit_b_160k_ade20k",
        "classifier_castling_levit_384_1000e_imagenet",
    }
    assert not larger & {*names}
    assert all(next((ROOT / "configs").rglob(f"{name}.py")) for name in names)


@pytest.mark.nightly
def test_a_quarter_of_an_hour(tmp_path):
    names = choose()
    first = datetime.date.today().toordinal() * 12 % len(names)
    command = [sys.executable, "tools/research/rehearse.py", "--root", str(tmp_path), "--seconds", "900"]
    subprocess.run([*command, *names[first:], *names[:first]], cwd=ROOT, check=True)
    rows = Rehearsal(tmp_path).done()
    assert rows
    assert not {name: row["error"] for name, row in rows.items() if "error" in row}
