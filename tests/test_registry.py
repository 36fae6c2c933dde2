"""What is imported when."""

import subprocess
import sys

import pytest
from mmengine.registry import MODELS

_BACKBONE = """
from mmlisa.models.backbones import FLattenSwin
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
    code += "\nimport sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"torch", "timm", "mmcv", "mmdet", "mmseg", "mmpretrain", "mmlisa.models.backbones.ivit", "mmlisa.ops.ttt"}
    assert heavy & set(done.stdout.splitlines()[-1].split()) == loaded


def test_every_name_is_found_from_another_scope():
    for name in ("LiSA", "LiSANet", "LCPAN", "PicoHead", "MlpClsHead"):
        assert MODELS.get(f"mmlisa.{name}").__name__ == name
    assert MODELS.get("mmlisa.NoSuchThing") is None
