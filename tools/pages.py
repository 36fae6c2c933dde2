"""Print a table that the site shows, such as ``channels``, ``fidelity`` or ``operators_cpu``."""

import argparse
import csv
import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import model_zoo

TABLES = Path(__file__).parent / "research" / "tables"
BENCHMARKS = Path(__file__).parents[1] / "docs" / "benchmarks"


def read_rows(name: str) -> list[dict[str, str]]:
    """Return the rows of ``research/tables/<name>.csv``."""
    return list(csv.DictReader((TABLES / f"{name}.csv").read_text(encoding="utf-8").splitlines()))


def channels() -> str:
    """Return channels and strides of every arch of every backbone; the backbones are built on the meta device."""
    from mmlisa.models import backbones
    from mmlisa.models.feature_maps import feature_maps

    table = "| backbone | arch | out_indices | channels | strides |\n|---|---|---|---|---|\n"
    for name in sorted(backbones.__all__, key=str.lower):
        for arch in getattr(backbones, name).arch_settings:
            columns = [" ".join(map(str, column)) for column in zip(*feature_maps(name, arch), strict=True)]
            table += f"| {name} | {arch} | {' | '.join(columns)} |\n"
    return table


def fidelity() -> str:
    """Return a section per paper: what reproduces each of its items, and whether it is exact, deviates or is absent."""
    page, rows = "", read_rows("fidelity")
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


def published_weights() -> str:
    """Return the share of each backbone that timm's published weights fill, by names and shapes; nothing is downloaded."""
    import timm
    import torch

    from mmlisa.conversion import match, recognise, rename
    from mmlisa.models import backbones

    table = "| backbone | source | parameters | tensors | starts fresh |\n|---|---|---|---|---|\n"
    for row in read_rows("published_weights"):
        kind, arch, name = row.values()
        with torch.device("meta"):
            backbone, state = getattr(backbones, kind)(arch), timm.create_model(name).state_dict()
        matched = match(rename(state, recognise(state), kind), backbone)
        fresh = dict.fromkeys(".".join("*" if p.isdigit() else p for p in n.split(".")[:-1]) for n in matched.fresh)
        shown = ", ".join(f"`{name}`" for name in list(fresh)[:5]) or "nothing"
        shown += f" and {len(fresh) - 5} more" if len(fresh) > 5 else ""
        tensors = f"{len(matched.state)} of {len(backbone.state_dict())}"
        table += f"| {kind} {arch} | `{name}` | {matched.share:.1%} | {tensors} | {shown} |\n"
    return table


def benchmark(file: Path) -> str:
    """Return the table of a suite of ``tools/benchmark.py``."""
    from research.benchmark import to_markdown

    suite, measured = file.stem.rpartition("_")[0], json.loads(file.read_text())
    table = to_markdown(suite.capitalize().replace("_", ", "), measured["rows"])
    return (
        f"{table}\n{measured['machine']}. `python tools/benchmark.py --suite {suite}` at commit {measured['commit']}.\n"
    )


PAGES: dict[str, Callable[[], str]] = {each.__name__: each for each in (channels, fidelity, published_weights)}
PAGES["model_zoo"] = model_zoo.to_markdown
PAGES |= {file.stem: partial(benchmark, file) for file in BENCHMARKS.glob("*.json")}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", choices=PAGES)
    print(PAGES[parser.parse_args().page](), end="")
