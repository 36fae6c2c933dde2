"""The documentation builds without a warning, its links lead somewhere, and what it quotes is there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

import mmlisa
import pages
from helpers.pages import PAGES, ROOT, name_of
from mmlisa.models.backbones import LiSANet
from pages import TABLES_BY_NAME

# What a page links to, without the anchor.
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")


def words(page: Path) -> int:
    """Number of words that a reader of the checkout sees: without comments."""
    return len(re.sub(r"<!--.*?-->", "", page.read_text(encoding="utf-8"), flags=re.DOTALL).split())


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_pages_with_content(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    targets = {page.parent / target for target in LINK.findall(text)}
    assert not [target for target in targets if not target.exists()]
    assert not [target for target in targets if target.suffix == ".md" and words(target) < 60]


# Tables for which networks are built, or all configs read.
SLOW = {"channels", "published_weights", "reproduce", *(name for name in TABLES_BY_NAME if name.startswith("counts_"))}


def test_tables_that_take_seconds_are_those_of_the_code():
    with pytest.raises(SystemExit) as end:
        pages.main(pages.parse_args(["--check", *sorted(TABLES_BY_NAME.keys() - SLOW)]))
    assert end.value.code == 0


@pytest.mark.nightly
def test_tables_are_those_of_the_code():
    done = subprocess.run([sys.executable, "tools/pages.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_builds_without_warnings(tmp_path):
    """MkDocs checks every relative link and anchor; under --strict a warning is an error."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr + done.stdout
    page = (tmp_path / "lisa.html").read_text(encoding="utf-8")
    assert "<math" in page
    assert r"\sum" not in page


# Files of the worked examples, a config of mmdetection, a placeholder.
NOT_OURS = {"elu_demo.py", "small_pyramid_demo.py", "retinanet_r50_fpn_1x_coco.py", "NAME_demo.py"}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_configs_that_a_page_names_ship(page):
    for name in re.findall(
        r"(?<![]*\w-])\w+_(?:demo|coco|ade20k|imagenet\d*k?)\.py\b", page.read_text(encoding="utf-8")
    ):
        if name not in NOT_OURS and not name.startswith("_"):  # which is the end of a pattern
            mmlisa.config_path(name)


def test_versions_agree():
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert f'\nversion = "{mmlisa.__version__}"\n' in project
    assert citation["version"] == mmlisa.__version__
    assert f"## {mmlisa.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert len(citation["references"]) == 7


def test_the_lowest_versions_are_those_that_ci_tests():
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    lowest = re.search(r"lowest\) packages=\((.*)\)", (ROOT / ".ci" / "versions").read_text(encoding="utf-8"))[1]
    tested = dict(package.split("==") for package in lowest.split())
    for name in ("torch", "timm"):
        assert f'"{name}>={tested[name]}"' in project


def test_the_files_of_one_image():
    """docs/architecture.md names those that an image passes."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = re.findall(
        r"^\| `(mmlisa/[\w/]+\.py)` \|", page.split("## One image")[1].split("## One checkpoint")[0], re.M
    )
    model, image, passed = LiSANet("hybrid-small").eval(), torch.zeros(1, 3, 500, 333), {}

    def note(frame, event, _):
        path = frame.f_code.co_filename.replace("\\", "/")
        if event == "call" and path.startswith(f"{ROOT.as_posix()}/mmlisa/"):
            passed[path.removeprefix(f"{ROOT.as_posix()}/")] = None

    with torch.no_grad():
        model(image)  # prepares the kernels
        sys.setprofile(note)
        model(image)
        sys.setprofile(None)
    assert named == list(passed)
