"""One thread per test process, as pytest-xdist starts a process per core, and Triton's interpreter for its kernels."""

import os

for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"
os.environ["TRITON_INTERPRET"] = "1"  # Triton asks when it is imported

import pytest  # noqa: E402
import torch  # noqa: E402
from mmengine.registry import DefaultScope  # noqa: E402

import mmlisa  # noqa: E402, F401 (tests may import mmdet first, which needs mmcv's operators)

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def no_default_scope_left_behind():
    """MMEngine's default scope is global: a test that builds a config must not decide where the next one searches."""
    yield
    DefaultScope._instance_dict.clear()
