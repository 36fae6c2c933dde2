"""MkDocs hooks: pages made outside of ``docs/``, room for wide tables, and equations as MathML, which needs no script."""

import html
import re
from fnmatch import fnmatchcase
from pathlib import Path

import yaml
from latex2mathml.converter import convert
from mkdocs.structure.files import File

ROOT = Path(__file__).parents[2]
# Files that GitHub shows from the root, as pages of the site.
FROM_ROOT = {"index.md": "README.md", "changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md"}
# Sidebars that pages leave out: the first two have no neighbours to list, the others want the room for their tables.
HIDDEN = {
    "index.md": ["navigation"],
    "model_zoo.md": ["navigation", "toc"],
    "fidelity.md": ["navigation"],
    "published_weights.md": ["toc"],
    "benchmarks/*.md": ["toc"],
}
_ROLE = re.compile(r":(?:class|func|meth|mod|attr|data):<code>~?([^<]*)</code>")  # docstrings' cross references
_EQUATION = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_files(files, config):
    for page, source in FROM_ROOT.items():
        text = (ROOT / source).read_text(encoding="utf-8").replace("](docs/", "](").replace('="docs/', '="')
        for target, name in FROM_ROOT.items():
            text = re.sub(rf"\]\({name}(?=[#)])", f"]({target}", text)
        files.append(File.generated(config, page, content=text))
    for name, page in yaml.safe_load(Path(__file__).with_name("api.yml").read_text(encoding="utf-8")).items():
        blocks = [f"# {page['title']}", page["text"], *(f"::: {each}" for each in page["names"])]
        files.append(File.generated(config, f"api/{name}.md", content="\n\n".join(blocks)))
    return files


def on_page_markdown(markdown, page, config, files):
    for pages, hidden in HIDDEN.items():
        if fnmatchcase(page.file.src_uri, pages):
            page.meta["hide"] = hidden
    return markdown


def on_page_content(content, page, config, files):
    def to_mathml(match):
        display = "block" if match[1] == "div" else "inline"
        return convert(html.unescape(match[2]), display=display)

    return _ROLE.sub(r"<code>\1</code>", _EQUATION.sub(to_mathml, content))
