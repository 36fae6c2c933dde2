"""Measurements that a page may show, and what is computed of them."""

import json

import pytest

from research import measured

ROW = dict(case="10x20", name="LiSANet-S", seconds=0.3, low=0.2, high=0.4)
BASE = dict(ROW, name="Swin-T", seconds=0.2)


def write(folder, rows, commit="c0ffee1", name="backbones_cpu.json"):
    file = folder / name
    file.write_text(json.dumps(dict(machine="a CPU", commit=commit, rows=rows)))
    return file


def test_ratios_are_those_of_the_times_of_the_file(tmp_path):
    """Whatever the file has as ratio."""
    row, _ = measured.read(write(tmp_path, [dict(ROW, ratio=1.0, ns_per_pixel=1.0), BASE]))["rows"]
    assert row["ratio"] == pytest.approx(1.5)
    assert row["ns_per_pixel"] == pytest.approx(0.3e9 / 200)


def test_ratios_are_to_the_same_case_and_pass():
    rows = [
        dict(ROW, case=case, mode=mode, name=name, seconds=seconds, peak_bytes=1000 * seconds)
        for case, mode, factor in (("7x7x8", "forward", 1), ("7x7x8", "both", 2), ("14x14x8", "forward", 3))
        for name, seconds in (("LiSA", 0.5), ("pseudo-code", 0.5 * factor))
    ]
    derived = measured.with_ratios(rows)
    assert [row["speedup"] for row in derived if row["name"] == "LiSA"] == [1, 2, 3]
    assert [row["memory_ratio"] for row in derived if row["name"] == "LiSA"] == pytest.approx([1, 1 / 2, 1 / 3])


@pytest.mark.parametrize("change", [dict(seconds=0.1), dict(seconds=0.5), dict(low=float("nan")), dict(high=0.25)])
def test_a_median_outside_of_its_quartiles_is_refused(tmp_path, change):
    with pytest.raises(ValueError, match=r"LiSANet-S: the median .* quartiles"):
        measured.read(write(tmp_path, [BASE, ROW | change]))


@pytest.mark.parametrize("commit", ["c0ffee1-dirty", "unknown", "a261c11-dirty"])
def test_what_is_not_the_code_of_a_commit_is_refused(tmp_path, commit):
    with pytest.raises(ValueError, match=f"'{commit}' is not a commit"):
        measured.read(write(tmp_path, [ROW], commit))


def test_what_is_not_the_code_of_today_is_said():
    result = dict(machine="a CPU", commit="c0ffee", date="2026-11-28", note="an older network")
    assert measured.describe(result) == "commit c0ffee, 2026-11-28, a CPU, an older network"
