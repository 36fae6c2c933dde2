"""The list of errors that `python tests/mutants` puts into the code belongs to the code as it is."""

from collections import Counter
from pathlib import Path

from mutants import ROOT, load_mutants

MUTANTS = load_mutants()


def test_every_error_fits_its_file_and_names_tests_that_are_there():
    for mutant in MUTANTS:
        mutant.apply((ROOT / mutant.file).read_text())
        assert all((ROOT / word).exists() for word in mutant.tests.split() if word.startswith("tests/")), mutant
    assert len({mutant.key for mutant in MUTANTS}) == len(MUTANTS) >= 120


def test_the_errors_are_spread_over_the_package_and_its_configs():
    parts = Counter(Path(mutant.file).parts[0 if mutant.file.startswith("configs/") else 1] for mutant in MUTANTS)
    packages = {path.parent.name for path in (ROOT / "mmlisa").glob("*/__init__.py")}
    assert {*packages, "configs", "cli.py"} <= parts.keys()
    assert max(parts.values()) <= len(MUTANTS) / 2
