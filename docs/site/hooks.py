"""MkDocs hooks: pages made of files outside ``docs/``, and equations as MathML, which browsers draw without a script."""

import html
import re
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.structure.files import File

ROOT = Path(__file__).parents[2]
# Files that GitHub shows from the root, as pages of the site.
FROM_ROOT = {"index.md": "README.md", "changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md"}
_ROLE = re.compile(r":(?:class|func|meth|mod|attr|data):<code>~?([^<]*)</code>")  # docstrings' cross references
_EQUATION = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_files(files, config):
    for page, source in FROM_ROOT.items():
        text = (ROOT / source).read_text(encoding="utf-8").replace("](docs/", "](").replace('="docs/', '="')
        for target, name in FROM_ROOT.items():
            text = re.sub(rf"\]\({name}(?=[#)])", f"]({target}", text)
        files.append(File.generated(config, page, content=text))
    return files


def on_page_content(content, page, config, files):
    def to_mathml(match):
        display = "block" if match[1] == "div" else "inline"
        return convert(html.unescape(match[2]), display=display)

    return _ROLE.sub(r"<code>\1</code>", _EQUATION.sub(to_mathml, content))
