"""What a test uses and what a source defines, by name; nothing is imported."""

import ast
import re
from functools import cache
from pathlib import Path

from helpers.pages import ROOT

_CONFIGS = ROOT / "configs"


def collected_tests(path: Path) -> set[str]:
    """Return the names of the tests that pytest collects from a file."""
    functions = [node for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef)]
    return {function.name for function in functions if function.name.startswith("test_")}


@cache
def names_used(path: Path) -> set[str]:
    """Return names and strings in a test file and in the helpers that it imports; a docstring is one string."""
    used = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        texts = [getattr(node, field, None) for field in ("id", "attr", "name", "value")]
        used |= {text.removeprefix("mmlisa.") for text in texts if isinstance(text, str)}
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("helpers."):
            helper = ROOT / "tests" / f"{node.module.replace('.', '/')}.py"
            used |= names_used(helper if helper.exists() else helper.with_suffix("") / "__init__.py")
    return used


def names_defined(source: Path) -> set[str]:
    """Return the functions and classes of a config, module or package, and of the modules that it names.

    A config names its bases, and both name types, and operators of ``mmlisa.ops``. Other files define nothing.
    """
    names, seen = set(), set()
    files = set(source.rglob("*.py")) if source.is_dir() else {source}
    files = {file for file in files if file.suffix == ".py"}
    while files:
        file = files.pop()
        seen.add(file)
        defined, named = _read(file)
        names |= defined
        files |= named - seen
    return names


@cache
def _read(file: Path) -> tuple[set[str], set[Path]]:
    text = file.read_text(encoding="utf-8")
    mentioned = re.findall(r'type="(?:mmlisa\.)?(\w+)"', text)
    for operators in re.findall(r"^from mmlisa\.ops import (\([^)]+|.+)", text, re.MULTILINE):
        mentioned += re.findall(r"\w+", operators)
    files = {_places()[name] for name in mentioned if name in _places()}
    if file.is_relative_to(_CONFIGS):
        stated = re.search(r'^_base_ = (\[.*?\]|".*?")', text, re.MULTILINE | re.DOTALL)
        bases = re.findall(r'"(.+?)"', stated[1]) if stated else []
        files |= {(file.parent / base).resolve() for base in bases if "::" not in base}
    return set(re.findall(r"^(?:class|def) ([A-Za-z]\w*)", text, re.MULTILINE)), files


@cache
def _places() -> dict[str, Path]:
    """The files of the networks' parts and of the operators, by name."""
    return {
        name: file
        for room, kinds in (("models", "class"), ("ops", "class|def"))
        for file in sorted((ROOT / "mmlisa" / room).rglob("*.py"))
        for name in re.findall(rf"^(?:{kinds}) ([A-Za-z]\w*)", file.read_text(encoding="utf-8"), re.MULTILINE)
    }
