"""One thread per test process, since pytest-xdist starts one process per core."""

import logging
import os

for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import pytest  # noqa: E402
import torch  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from mmengine.registry import DefaultScope  # noqa: E402

import mmlisa  # noqa: E402, F401 (tests may import mmdet first, which needs mmcv's operators)

torch.set_num_threads(1)
# PyTorch sets up its autograd once per process. Without this, a test that exports or compiles before the first backward pass
# would leave a process whose forks cannot train.
torch.ones(1, requires_grad=True).sum().backward()
# Loggers of earlier tests write to streams that pytest has closed.
logging.raiseExceptions = False


@pytest.fixture(autouse=True)
def no_default_scope_left_behind():
    """MMEngine's default scope is global: a test that builds a config must not decide where the next one searches."""
    yield
    DefaultScope._instance_dict.clear()


@pytest.fixture
def figures(monkeypatch) -> list[Figure]:
    """The figures that matplotlib saves during a test, to look at what they show."""
    saved = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *args, **kwargs: saved.append(figure))
    return saved
