"""Which operators a program gets, each tried in a new Python process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from mmcv import ops

from mmlisa import mmcv_ops
from mmlisa.mmcv_ops import ext
from mmlisa.mmcv_ops.__main__ import LINE, NAME, install, status, uninstall

CLONE = str(Path(__file__).parents[2])
uncompiled = pytest.mark.skipif(bool(mmcv_ops.find_compiled()), reason="mmcv has compiled operators")


def _python(code: str, *options: str, path: str = CLONE) -> str:
    """Return what a new Python process prints; it must succeed."""
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, *options, "-c", code], cwd="/", env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_compiled_operators_win(tmp_path):
    (tmp_path / "mmcv").mkdir()
    (tmp_path / "mmcv" / "__init__.py").touch()
    compiled = tmp_path / "mmcv" / "_ext.py"
    compiled.write_text("")
    code = "import mmlisa, mmcv._ext; print(mmcv._ext.__file__, mmlisa.mmcv_ops.find_compiled())"
    assert _python(code, path=f"{tmp_path}:{CLONE}").split() == [str(compiled)] * 2
    compiled.unlink()
    code = "import mmlisa, importlib.util; print(importlib.util.find_spec('mmcv._ext').origin, mmlisa.mmcv_ops.find_compiled())"
    assert _python(code, path=f"{tmp_path}:{CLONE}").split() == [str(Path(mmcv_ops.__file__).parent / "ext.py"), "None"]


@uncompiled
@pytest.mark.parametrize("name", ["box_iou_rotated", "carafe_forward", "psamask_forward", "bbox_overlaps"])
def test_a_missing_operator_is_named_with_the_command_that_compiles_it(name):
    with pytest.raises(NotImplementedError, match=rf"'{name}'.*MMCV_WITH_OPS=1 .*mmcv==\d"):
        getattr(ext, name)()


@uncompiled
def test_the_maximum_of_roi_align_is_missing():
    with pytest.raises(NotImplementedError, match=r"pool_mode='max'.*MMCV_WITH_OPS=1"):
        ops.roi_align(torch.rand(1, 2, 8, 8), torch.tensor([[0.0, 1, 1, 6, 6]]), 2, 1.0, 2, "max")


def test_mmdet_by_itself(tmp_path):
    """mmdet's own code never imports mmlisa; the .pth file does, from a folder that Python reads at its start."""
    (tmp_path / NAME).write_text(LINE)
    code = f"""
import site; site.addsitedir({str(tmp_path)!r})
import mmdet, numpy as np
from pathlib import Path
from mmdet.apis import inference_detector, init_detector
config = Path(mmdet.__file__).parent / ".mim/configs/faster_rcnn/faster-rcnn_r50_fpn_1x_coco.py"
options = {{"model.backbone.init_cfg": None, "test_dataloader.dataset.pipeline.1.scale": (64, 64)}}
model = init_detector(str(config), device="cpu", cfg_options=options)
print(len(inference_detector(model, np.zeros((64, 64, 3), np.uint8)).pred_instances.bboxes.shape))
"""
    assert _python(code).split()[-1] == "2"


def test_no_start_fails_where_mmlisa_is_gone():
    assert _python(f"{LINE}print('fine')", "-S", "-E") == "fine\n"


def test_install_and_uninstall(tmp_path):
    assert "programs that import mmlisa" in status(tmp_path)
    assert install(tmp_path) == f"installed: {tmp_path / NAME}"
    assert "every program" in status(tmp_path)
    assert uninstall(tmp_path) == f"uninstalled: {tmp_path / NAME}"
    assert not list(tmp_path.iterdir())
    assert "not installed" in uninstall(tmp_path)


def test_install_where_python_does_not_find_mmlisa(tmp_path, monkeypatch):
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    bare.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(bare))
    with pytest.raises(RuntimeError, match="mmlisa is not installed for"):
        install(tmp_path)
    assert not (tmp_path / NAME).exists()
