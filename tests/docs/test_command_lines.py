"""Every documented command line is parsed by its command, and nothing runs; test_commands.py runs some of them each night."""

import re
import shlex
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from helpers.pages import PAGES, ROOT, commands, name_of, read_blocks
from mmlisa import cli, config_path

# Code in a sentence or a docstring: mmlisa COMMAND …, tools/NAME.py …
IN_TEXT = re.compile(r"(?<!`)(``?)((?:[A-Z]+=\S* |uv run |python )*(?:mmlisa [a-z]|tools/[\w/]+\.py)[^`{\n]*)\1(?!`)")
# In the header of a config, a command ends before the first word that is neither an option, nor a placeholder, nor a path.
IN_HEADER = re.compile(r"(?:tools/\w+\.py|mmlisa [a-z-]+)(?: (?:--[\w-]+|[A-Z_]+(?![\w:])|[\w-]*[./:=][\w./:=-]*\w))+")
# Tools of mmdeploy, which docs/from_mmdeploy.md compares with ours.
NOT_OURS = ("tools/deploy.py", "tools/check_env.py", "tools/test.py DEPLOY_CFG")


def parse(words: list[str], complete: bool) -> str | None:
    """Parse a command line that has ``mmlisa`` or a tool in it, and return its config.

    A command in a sentence is not ``complete``: required arguments may be missing.
    """
    start = next(i for i, word in enumerate(words) if word == "mmlisa" or word.startswith("tools/"))
    program, *arguments = words[start:]
    if program == "mmlisa":
        program = arguments.pop(0)
    name = Path(program).stem.replace("-", "_")
    if name.replace("_", "-") not in cli.COMMANDS:
        assert (ROOT / program).is_file(), f"{program} does not exist"
        if not arguments and not complete:
            return None
        folder = "research." if "/research/" in program else ""
        return getattr(import_module(f"{folder}{name}").parse_args(arguments), "config", None)
    parser = import_module(f"mmlisa.commands.{name}").parser()
    if not complete:
        for action in parser._actions:
            action.required = False
    return getattr(parser.parse_intermixed_args(arguments), "config", None)


@pytest.fixture(autouse=True)
def _files_that_the_reader_has(monkeypatch):
    monkeypatch.setitem(cli.SHARED["config"], "type", str)
    for kind in ("config_file", "weights_source", "existing_path"):
        monkeypatch.setattr(cli, kind, str)


def lines_of(path: Path) -> Iterator[str]:
    """The commands in the text of a page, in the docstrings of a program, or in the comments of a config."""
    text = path.read_text(encoding="utf-8")
    if path.is_relative_to(ROOT / "configs"):
        comments = "".join(line.removeprefix("#").strip() + " " for line in text.splitlines() if line.startswith("#"))
        yield from (found[0] for found in IN_HEADER.finditer(comments.replace("\\ ", "")))
        return
    text = re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.MULTILINE | re.DOTALL)
    yield from (found[2] for found in IN_TEXT.finditer(text))


@pytest.mark.parametrize("page", [page for page in PAGES if read_blocks(page)], ids=name_of)
def test_blocks(page):
    blocks = read_blocks(page)
    written = {block.title for block in blocks}
    for words in commands(blocks):
        is_ours = any(word == "mmlisa" or word.startswith("tools/") for word in words)
        if not is_ours or words[0] in ("cd", "conda", "git", "pip", "ruff") or words[-1] in ("--version", "--help"):
            continue
        config = parse(words, complete=True)
        if config and not config.isupper() and config not in written:
            assert (ROOT / config).is_file() or config_path(config)


TEXTS = {
    "pages": [*PAGES, ROOT / "SECURITY.md", ROOT / "llms.txt"],
    "programs": [*(ROOT / "tools").rglob("*.py"), *(ROOT / "mmlisa").rglob("*.py"), *(ROOT / "docs").rglob("*.py")],
    "configs": [*(ROOT / "configs").rglob("*.py")],
}


@pytest.mark.parametrize("texts", TEXTS)
def test_text(texts, capsys):
    lines = [(path, line) for path in TEXTS[texts] for line in lines_of(path) if not line.startswith(NOT_OURS)]
    assert len(lines) > 20
    wrong = []
    for path, line in lines:
        try:
            parse(shlex.split(line.partition("|")[0]), complete=False)
        except SystemExit as end:
            if end.code:
                wrong.append(f"{name_of(path)}: {line}: {capsys.readouterr().err}")
    assert not wrong, "\n".join(wrong)
