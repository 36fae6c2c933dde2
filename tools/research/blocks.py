"""Tables in pages, between ``<!-- begin NAME -->`` and ``<!-- end NAME -->``."""

import re


def replace_block(text: str, name: str, table: str) -> str:
    """Replace the content of a block.

    Raises:
        ValueError: the text has no such block, or several.
    """
    pattern = rf"(<!-- begin {re.escape(name)} -->\n).*?(<!-- end {re.escape(name)} -->)"
    replaced, count = re.subn(
        pattern, lambda block: f"{block[1]}\n{table.strip()}\n\n{block[2]}", text, flags=re.DOTALL
    )
    if count != 1:
        raise ValueError(f"the page has {count} blocks named '{name}'; one is needed")
    return replaced


def block_names(text: str) -> list[str]:
    """Return the names of a page's blocks."""
    return re.findall(r"<!-- begin (\S+) -->", text)
