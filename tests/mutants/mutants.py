"""Small errors of the kind people make, as a list: see ``python tests/mutants --help``."""

import hashlib
from pathlib import Path
from typing import NamedTuple

import yaml

ROOT = Path(__file__).parents[2]


class Mutant(NamedTuple):
    """An error: in ``file`` stands ``new`` where ``old``, which is there once, belongs; ``tests``, for pytest, should notice."""

    file: str
    old: str
    new: str
    tests: str

    def __str__(self) -> str:
        return f"{self.file}: {' '.join(self.new.split())[:70]}"

    @property
    def key(self) -> str:
        return hashlib.sha256("\0".join(self[:3]).encode()).hexdigest()[:12]

    @property
    def wider_tests(self) -> str:
        """All tests of the part of the package that the file belongs to."""
        part = Path(self.file).parts
        folder = ROOT / "tests" / (part[0] if part[0] != "mmlisa" else part[1])
        return (
            f"tests/{folder.name}"
            if folder.is_dir()
            else "tests/test_cli.py tests/test_registry.py tests/test_check_env.py"
        )

    def apply(self, text: str) -> str:
        """The file's text with the error in it.

        Raises:
            ValueError: ``old`` is not there exactly once.
        """
        if (count := text.count(self.old)) != 1 or self.old == self.new:
            raise ValueError(
                f"{self.file} has {self.old!r} {count} times; it must be there once, and be another text than `new`"
            )
        return text.replace(self.old, self.new)


def load_mutants() -> list[Mutant]:
    """The list, in its order."""
    groups = yaml.safe_load(Path(__file__).with_name("mutants.yaml").read_text())
    return [
        Mutant(g["file"], old, new, more[0] if more else g["tests"]) for g in groups for old, new, *more in g["errors"]
    ]
