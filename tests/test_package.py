"""What a user gets from the wheel, and what OpenMMLab's tools find in it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from mmengine.fileio import load

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
RESEARCH_TOOLS = {"benchmark", "compare", "model_zoo", "paper_tables"}


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """The tree that the wheel would unpack to."""
    lib = tmp_path_factory.mktemp("wheel")
    command = [
        sys.executable,
        "setup.py",
        "-q",
        "build",
        "--build-base",
        str(lib / "base"),
        "--build-lib",
        str(lib / "lib"),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return lib / "lib"


def test_configs_and_tools_are_where_mim_looks(installed):
    mim = installed / "mmlisa" / ".mim"
    files = {path.relative_to(ROOT) for folder in ("configs", "tools") for path in (ROOT / folder).rglob("*.py")}
    research = {path for path in files if "research" in path.parts or path.stem in RESEARCH_TOOLS}
    assert {path.relative_to(mim) for path in mim.rglob("*.py")} == files - research
    assert len(research) > len(RESEARCH_TOOLS)
    assert not any("from research" in path.read_text() for path in installed.rglob("*.py"))
    for metafile in load(mim / "model-index.yml")["Import"]:
        models = load(mim / metafile)["Models"]
        assert {Path(model["Config"]) for model in models} == {
            path.relative_to(ROOT)
            for path in (ROOT / "configs").rglob("*.py")
            if "_base_" not in path.parts and not path.stem.endswith("_demo")
        }


def test_the_console_script_finds_the_tools(installed, tmp_path):
    env = {**os.environ, "PYTHONPATH": str(installed)}
    command = [sys.executable, "-m", "mmlisa.cli", "train", "--help"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.stdout.startswith("usage: mmlisa train "), done.stderr
    script = "from mmlisa import cli; print(*cli.commands().values(), sep='\\n')"
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert all(Path(line).is_relative_to(installed) for line in done.stdout.splitlines()), done.stdout


def test_downstream_project_of_the_installed_package(installed, tmp_path):
    config = tmp_path / "mine.py"
    config.write_text(
        '_base_ = __import__("mmlisa").config_path("mask_rcnn_hylisanet_s_1x_coco.py")\nwork_dir = "mine"\n'
    )
    script = (
        "import mmlisa, mmengine, sys\n"
        f"assert mmlisa.__file__.startswith({str(installed)!r}), mmlisa.__file__\n"
        "cfg = mmengine.Config.fromfile(sys.argv[1])\n"
        "print(cfg.model.backbone.arch, mmlisa.config_path('mask_rcnn_hylisanet_s_1x_coco.py'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(config)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().startswith("hybrid-small")
    assert ".mim/configs" in done.stdout


def test_operators_import_torch_only():
    """`mmlisa.ops` must be importable where no OpenMMLab package is."""
    script = (
        "import sys\n"
        "for name in ('mmengine', 'mmcv', 'mmdet', 'mmseg', 'mmpretrain', 'timm'): sys.modules[name] = None\n"
        "import mmlisa.ops\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_backbones_import_without_detection_packages():
    script = (
        "import sys\n"
        "for name in ('mmcv', 'mmdet', 'mmseg', 'mmpretrain'): sys.modules[name] = None\n"
        "import mmlisa.models.backbones, mmlisa.models.attention\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
