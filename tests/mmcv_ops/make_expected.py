"""Write expected.npz, the results of mmcv's compiled operators. Run it in an environment that has them:

python tests/mmcv_ops/make_expected.py
"""

from pathlib import Path

import numpy as np
from mmcv import _ext
from operator_cases import CASES, run

EXPECTED = Path(__file__).parent / "expected.npz"


if __name__ == "__main__":
    if not _ext.__file__.endswith(".so"):
        raise SystemExit(f"mmcv has no compiled operators here: mmcv._ext is {_ext.__file__}")
    results = {f"{name}: {key}": value.numpy() for name, case in CASES.items() for key, value in run(case).items()}
    np.savez_compressed(EXPECTED, **results)
    print(f"{len(CASES)} cases, {EXPECTED.stat().st_size / 1024:.0f} KiB")
