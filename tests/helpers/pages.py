"""The pages of the documentation: their code blocks and their commands."""

import re
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md")] + sorted((ROOT / "docs").rglob("*.md"))


class Block(NamedTuple):
    language: str
    title: str | None
    code: str
    not_run: bool  # the page says why, in a comment before the block: it is only compiled


FENCE = re.compile(
    r'(<!-- not run: [^>]+-->\n)?^( *)```(\w*)(?: title="([^"]+)")?\n(.*?)^\2```$', re.MULTILINE | re.DOTALL
)


def read_blocks(page: Path) -> list[Block]:
    found = FENCE.findall(page.read_text(encoding="utf-8"))
    return [
        Block(language, title or None, textwrap.dedent(code), bool(comment))
        for comment, _, language, title, code in found
    ]


def commands(blocks: list[Block]) -> Iterator[list[str]]:
    for block in blocks:
        if block.language == "bash":
            for line in block.code.replace("\\\n", " ").splitlines():
                for part in line.split("&&"):
                    if words := shlex.split(part, comments=True):
                        yield words


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()
