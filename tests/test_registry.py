"""What is imported when."""

import subprocess
import sys

import pytest
from mmengine.registry import MODELS

from mmlisa import registry

_BACKBONE = """
import mmlisa.models.backbones
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
    heavy = {"torch", "timm", "mmcv", "mmdet", "mmseg", "mmpretrain"}
    assert heavy & set(done.stdout.splitlines()[-1].split()) == loaded


def test_every_name_is_found_from_another_scope():
    for name in ("LiSA", "LiSANet", "LCPAN", "PicoHead", "MlpClsHead"):
        assert MODELS.get(f"mmlisa.{name}").__name__ == name
    assert MODELS.get("mmlisa.NoSuchThing") is None


def test_modules_of_missing_libraries_are_left_out(monkeypatch):
    """A misspelt metric is reported as such where mmseg is missing."""
    monkeypatch.setattr(registry, "find_spec", lambda library: None if library == "mmseg" else library)
    metrics = registry._child(registry.roots.Registry("thing"), "visualization.evaluation", "datasets.segmentation")
    assert metrics._locations == ["mmlisa.visualization.evaluation"]


def test_a_failed_import_is_reported_again():
    """Every use of a name gives the reason, not only the first."""
    things = registry._Registry("thing", scope="mmlisa", locations=["mmlisa.no_such_module"])
    for _ in range(2):
        with pytest.raises(ModuleNotFoundError, match="no_such_module"):
            things.get("mmlisa.Thing")


def test_an_import_may_ask_the_registry_that_imports_it(tmp_path, monkeypatch):
    (tmp_path / "asking.py").write_text("import late\nlate.things.get('Thing')\n")
    (tmp_path / "late.py").write_text("things = None\n")
    (tmp_path / "made.py").write_text("import late\n@late.things.register_module()\nclass Thing: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    import late

    late.things = registry._Registry("thing", scope="mmlisa", locations=["asking", "made"])
    assert late.things.get("Thing").__name__ == "Thing"
