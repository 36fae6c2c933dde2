"""Every program in tools/ is imported, and lists its options; tests/test_package.py does so for the commands of the wheel."""

from importlib import import_module, util
from pathlib import Path

import pytest

from mmlisa import cli

ROOT = Path(__file__).parents[2]
PROGRAMS = [*sorted((ROOT / "tools").rglob("*.py")), *sorted((ROOT / "docs" / "site").glob("*.py"))]


def test_programs_are_imported_and_list_their_options(capsys):
    for path in PROGRAMS:
        if path.parent.name == "research":  # a package, with imports within it
            program = import_module(f"research.{path.stem}")
        else:  # not by its name, which may be that of another module: `test`
            spec = util.spec_from_file_location(f"program_{path.stem}", path)
            program = util.module_from_spec(spec)
            spec.loader.exec_module(program)
        if hasattr(program, "parse_args"):
            with pytest.raises(SystemExit) as end:
                program.parse_args(["--help"])
            assert end.value.code == 0, path
            assert "usage: " in capsys.readouterr().out
        elif path.parent.name == "tools":
            assert path.stem.replace("_", "-") in cli.COMMANDS
