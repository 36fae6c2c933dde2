"""Print what reproduces each item of the papers, and whether it is exact, deviates or is absent: a page of the site."""

import argparse
import csv
from collections import Counter
from pathlib import Path

ROWS = Path(__file__).parent / "research" / "tables" / "fidelity.csv"
PAGE = """# Fidelity

Every system, table, figure and recipe of the papers: what reproduces it here, and how it differs. *Exact* means that the
definition or recipe of the text is met and that the counts agree. No accuracy counts as met: no full training was run.

"""


def read_rows() -> list[dict[str, str]]:
    """Return the items: ``paper``, ``item``, ``source`` (configs or files, separated by commas) and ``status``."""
    with ROWS.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def to_markdown() -> str:
    """Return the page: a table per paper."""
    page, rows = PAGE, read_rows()
    for paper in dict.fromkeys(row["paper"] for row in rows):
        chosen = [row for row in rows if row["paper"] == paper]
        counts = Counter(row["status"].split(":")[0] for row in chosen)
        page += f"## {paper}\n\n{', '.join(f'{number} {kind}' for kind, number in counts.items())}.\n\n"
        page += "| item | config or file | status |\n|---|---|---|\n"
        for row in chosen:
            cells = [row["item"], row["source"], row["status"]]
            page += f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |\n"
        page += "\n"
    return page


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    print(to_markdown(), end="")
