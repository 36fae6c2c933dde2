"""Code in other processes."""

import pytest

from mmlisa.probes import run_probes

pytestmark = pytest.mark.slow


def test_every_end_is_a_result():
    codes = {
        "noise": "import os; print('noise'); os.system('echo more'); print('1.2')",
        "error": "raise ImportError('no such\\nthing')",
        "crash": "import os; os.abort()",
        "exit": "raise SystemExit(0)",
        "after": "print('still here')",
        "loop": "while True: pass",
        "last": "",
    }
    assert run_probes(codes, timeout=5) == {
        "noise": ("", "noise\n1.2\n"),
        "error": ("thing", ""),
        "crash": ("crashed (signal 6)", ""),
        "exit": ("SystemExit: 0", ""),
        "after": ("", "still here\n"),
        "loop": ("did not finish within 5 s", ""),
        "last": ("", ""),
    }
