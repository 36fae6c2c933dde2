"""Which operators a program gets, each tried in a new Python process."""

import os
import subprocess
import sys
from pathlib import Path

from mmlisa import mmcv_ops

CLONE = str(Path(__file__).parents[2])


def _python(code: str, path: str = CLONE) -> str:
    """Return what a new Python process prints; it must succeed."""
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", code], cwd="/", env=environment, capture_output=True, text=True)
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
