"""Write the tables of the documentation's pages, or check that the pages have them: ``tools/pages.py --check``.

A table stands between ``<!-- begin NAME -->`` and ``<!-- end NAME -->``. Those of the papers take a minute each.
"""

import argparse
import csv
import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import model_zoo
import paper_tables
from research import benchmark_tables, fidelity, measured, recipes, rehearse
from research.blocks import block_names, replace_block

TABLES = Path(__file__).parent / "research" / "tables"
DOCS = Path(__file__).parents[1] / "docs"

# Suites that stand for a figure or table of a paper.
TITLES = {
    "interaction": "iViT, Fig. 3",
    "blocks": "LiSA, first version, Fig. 4",
    "blocks_192": "LiSA, Table 4",
    "resolutions": "Castling-ViT, Table 8",
    "latency": "Castling-ViT, Table 10",
    "onnxruntime": "Exported files",
    "pixels": "Time per pixel",
}


def read_rows(name: str) -> list[dict[str, str]]:
    """Return the rows of ``research/tables/<name>.csv``."""
    return list(csv.DictReader((TABLES / f"{name}.csv").read_text(encoding="utf-8").splitlines()))


def channels() -> str:
    """Return channels and strides of every arch of every backbone; the backbones are built on the meta device."""
    import torch

    from mmlisa.models import backbones

    table = "| backbone | arch | out_indices | channels | strides |\n|---|---|---|---|---|\n"
    for name in sorted(backbones.__all__, key=str.lower):
        for arch in getattr(backbones, name).arch_settings:
            with torch.device("meta"):
                built = getattr(backbones, name)(arch)
            columns = (built.out_indices, built.feature_channels, built.feature_strides)
            table += f"| {name} | {arch} | {' | '.join(' '.join(map(str, column)) for column in columns)} |\n"
    return table


def published_weights() -> str:
    """Return the share of each backbone that timm's published weights fill, by names and shapes; nothing is downloaded."""
    import timm
    import torch

    from mmlisa.conversion import match
    from mmlisa.models import backbones

    table = "| backbone | source | parameters | tensors | starts fresh |\n|---|---|---|---|---|\n"
    for row in read_rows("published_weights"):
        backbone_name, arch, name = row.values()
        with torch.device("meta"):
            backbone, state = getattr(backbones, backbone_name)(arch), timm.create_model(name).state_dict()
        matched = match(state, backbone)
        fresh = dict.fromkeys(".".join("*" if p.isdigit() else p for p in n.split(".")[:-1]) for n in matched.fresh)
        listed = ", ".join(f"`{name}`" for name in list(fresh)[:5]) or "nothing"
        listed += f" and {len(fresh) - 5} more" if len(fresh) > 5 else ""
        tensors = f"{len(matched.state)} of {len(backbone.state_dict())}"
        table += f"| {backbone_name} {arch} | `{name}` | {matched.share:.1%} | {tensors} | {listed} |\n"
    return table


def benchmark(file: Path) -> str:
    """Return the table of a suite of ``tools/benchmark.py``."""
    from research.benchmark import to_markdown

    suite, result = file.stem.rpartition("_")[0], measured.read(file)
    table = to_markdown(TITLES.get(suite, suite.capitalize()), result["rows"])
    return f"{table}\n`python tools/benchmark.py --suite {suite}`: {measured.describe(result)}.\n"


def gpu() -> str:
    """Return the tables of ``tools/benchmark.py gpu``."""
    from research.gpu import to_markdown

    file = DOCS / "benchmarks" / "gpu.json"
    parts = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return "\n".join(map(to_markdown, parts.values())) or "Not measured yet.\n"


def _tables(program: str, names: Sequence[str], to_markdown: Callable[[Any], str]) -> str:
    """Return the tables of files of ``docs/benchmarks`` that a program of tools/research wrote."""
    tables = []
    for name in names:
        result = json.loads((measured.FOLDER / f"{name}.json").read_text(encoding="utf-8"))
        measured.check_commit(result["commit"], name)
        tables.append(f"{to_markdown(result['rows'])}\n`tools/research/{program}`: {measured.describe(result)}.\n")
    return "\n".join(tables)


def takeover() -> str:
    """Return the tables at one thread, of larger images, at two threads and in half precision."""
    from research.takeover import to_markdown

    names = ("takeover", "takeover_1400", "takeover_two_threads", "takeover_bf16")
    return _tables("takeover.py", names, to_markdown)


def linear_head() -> str:
    """Return the tables at two sizes."""
    from research.linear_head import to_markdown

    return _tables("linear_head.py", ("linear_head_224", "linear_head"), to_markdown)


def worth() -> str:
    """Return the table of few images."""
    from research.worth import to_markdown

    return _tables("worth.py", ("worth",), to_markdown)


TABLES_BY_NAME: dict[str, Callable[[], str]] = {
    each.__name__: each for each in (channels, gpu, linear_head, published_weights, takeover, worth)
}
TABLES_BY_NAME |= {
    "model_zoo": model_zoo.to_markdown,
    "fidelity": fidelity.to_markdown,
    "reproduce": recipes.to_markdown,
    "rehearsal": rehearse.to_markdown,
}
TABLES_BY_NAME |= {file.stem: partial(benchmark, file) for file in measured.FOLDER.glob("*_cpu.json")}
TABLES_BY_NAME |= {
    "backbones_readme": benchmark_tables.readme,
    "backbones_footer": benchmark_tables.readme_footer,
    "backbones_choosing": benchmark_tables.choosing,
    "backbones_over_swin": benchmark_tables.over_swin,
}
TABLES_BY_NAME |= {f"counts_{paper}": partial(paper_tables.to_markdown, paper) for paper in paper_tables.PAPERS}


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--write", action="store_true", help="write the tables into the pages")
    mode.add_argument("--check", action="store_true", help="exit with 1 if a page has other tables")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"tables (default: all): {', '.join(TABLES_BY_NAME)}")
    args = parser.parse_args(argv)
    if unknown := set(args.names) - set(TABLES_BY_NAME):
        parser.error(f"NAME: unknown {', '.join(unknown)}")
    return args


def main(args: argparse.Namespace) -> None:
    stale = []
    # docs/fidelity.md reads the tables of the papers.
    pages = [DOCS.parent / "README.md", *DOCS.rglob("*.md")]
    for page in sorted(pages, key=lambda page: (page.name == "fidelity.md", page)):
        text = new = page.read_text(encoding="utf-8")
        for name in block_names(text):
            if name in TABLES_BY_NAME and name in (args.names or TABLES_BY_NAME):
                new = replace_block(new, name, TABLES_BY_NAME[name]())
        if new != text:
            stale.append(str(page))
            if args.write:
                page.write_text(new, encoding="utf-8")
    print(*(f"{page}: {'written' if args.write else 'other tables'}" for page in stale), sep="\n")
    sys.exit(bool(stale) and args.check)


if __name__ == "__main__":
    main(parse_args())
