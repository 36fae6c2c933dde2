"""README's and docs/choosing.md's tables come from the measurements, and name their commits."""

import json

import pytest

from research import benchmark_tables, measured

ROW = dict(seconds=0.5, low=0.5, high=3.0, bf16_seconds=0.25, peak_bytes=2e6)


@pytest.fixture
def files(monkeypatch, tmp_path):
    names = [each["backbone"] for each in benchmark_tables._backbones()]
    for suite, factor in (("backbones", 1), ("onnxruntime", 2)):
        rows = [
            dict(ROW, name=name, case=case, seconds=factor * ROW["seconds"])
            for name in names
            for case in benchmark_tables.SIZES
        ]
        rows += [dict(row, seconds=3.0) for row in rows if row["name"] == "iViT-T"]
        file = tmp_path / f"{suite}_cpu.json"
        file.write_text(json.dumps(dict(machine="a CPU", commit=f"c0ffee{factor}", rows=rows)))
    monkeypatch.setattr(measured, "FOLDER", tmp_path)
    return tmp_path


def test_each_column_comes_from_its_file(files):
    line = "| {} | 3000 ({}) | 3000 ({}) | 250 (1.00) | 3000 ({}) | 2 MB |"
    assert line.format("iViT-T", "6.00", "6.00", "3.00") in benchmark_tables.readme()
    assert "| *ConvNeXt-T* | 500 (1.00) | 500 (1.00) | 250 (1.00) | 1000 (1.00) | 2 MB |" in benchmark_tables.readme()
    assert "| iViT-T | 3000 / 3000 | 3000 / 3000 | 3000 / 3000 | 48.7 (3x) |" in benchmark_tables.choosing()


def test_the_footer_names_the_commit_of_each_file(files):
    for text in (benchmark_tables.readme_footer(), benchmark_tables.choosing()):
        assert text.index("c0ffee1") < text.index("nnxruntime: commit c0ffee2, a CPU")
