"""Contents of the wheel, what is imported when, and imports that work without OpenMMLab's packages."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from mmengine.fileio import load
from mmengine.registry import MODELS

from mmlisa import cli

ROOT = Path(__file__).parents[1]


def run(*words: str, **options) -> str:
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """The tree that the wheel would unpack to."""
    lib = tmp_path_factory.mktemp("wheel")
    words = ("setup.py", "-q", "build", "--build-base", str(lib / "base"), "--build-lib", str(lib / "lib"))
    run(*words, cwd=ROOT)
    return lib / "lib"


def test_configs_and_tools_are_where_mim_looks(installed):
    mim = installed / "mmlisa" / ".mim"
    tools = {path.relative_to(mim / "tools").as_posix() for path in mim.glob("tools/*.py")}
    assert tools == {"train.py", "test.py", "infer.py", "export.py"}
    configs = {path.relative_to(ROOT) for path in ROOT.glob("configs/**/*.py")}
    assert {path.relative_to(mim) for path in mim.glob("configs/**/*.py")} == configs
    shipped = {path for path in configs if "_base_" not in path.parts and not path.stem.endswith("_demo")}
    for metafile in load(mim / "model-index.yml")["Import"]:
        assert {Path(model["Config"]) for model in load(mim / metafile)["Models"]} == shipped


COMMANDS = """
import sys
from mmlisa import cli, config_path
print(config_path("mask_rcnn_hylisanet_s_1x_coco.py"))
mistakes = [["trian"], ["train", "nosuch.py"], ["test", "a.pth", "b.py"]]
for words in [[name, "--help"] for name in cli.COMMANDS] + mistakes:
    try:
        cli.main(words)
    except SystemExit as end:
        assert end.code == 2 * (words in mistakes), words
    heavy = {"torch", "mmengine", "cv2", "numpy", "matplotlib"} & set(sys.modules)
    assert not heavy, (words, heavy)
"""


def test_commands_of_the_wheel_answer_before_pytorch_is_imported(installed, tmp_path):
    """Also mistakes in the arguments."""
    printed = run("-c", COMMANDS, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(installed)})
    assert printed.startswith(f"{installed}/mmlisa/.mim/configs/")
    assert all(f"usage: mmlisa {name} " in printed for name in cli.COMMANDS)


def without(*missing: str) -> str:
    """Return the start of a program for which packages are missing."""
    return f"import sys; sys.modules.update(dict.fromkeys({missing})); "


def test_backbones_are_built_without_detection_packages():
    run(
        "-c",
        without("mmcv", "mmdet", "mmseg", "mmpretrain")
        + "import mmlisa; mmlisa.create_model('lcnet_x0_25', features_only=True)",
    )


def test_the_check_runs_without_openmmlab():
    script = without("mmengine", "mmcv", "mmdet", "mmseg", "mmpretrain") + "from mmlisa import cli; cli.main(['check'])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    lines = dict(re.split("  +", line, maxsplit=1) for line in done.stdout.splitlines())
    assert lines["mmcv"] == lines["mmdet"] == "not installed"
    assert lines["torch"][0].isdigit()


_BACKBONE = """
from mmlisa.models import FLattenSwin
from mmlisa.registry import MODELS
MODELS.build(dict(type="LiSANet", arch="hybrid-small"))
"""
# mmseg imports mmpretrain.
_SEGMENTATION = """
from mmlisa.registry import DATASETS
DATASETS.get("DemoSegDataset")
"""


@pytest.mark.parametrize(
    ("code", "loaded"),
    [
        ("import mmlisa", set()),
        (_BACKBONE, {"torch", "timm"}),
        (_SEGMENTATION, {"torch", "mmcv", "mmseg", "mmpretrain"}),
    ],
)
def test_imports_only_what_is_asked_for(code, loaded):
    printed = run("-c", f"{code}\nimport sys; print(*sys.modules)")
    heavy = {"torch", "timm", "mmcv", "mmdet", "mmseg", "mmpretrain", "mmlisa.models.backbones.ivit", "mmlisa.ops.ttt"}
    assert heavy & set(printed.splitlines()[-1].split()) == loaded


def test_every_name_is_found_from_another_scope():
    for name in ("LiSA", "LiSANet", "LCPAN", "PicoHead", "MlpClsHead"):
        assert MODELS.get(f"mmlisa.{name}").__name__ == name
    assert MODELS.get("mmlisa.NoSuchThing") is None
