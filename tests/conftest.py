"""One thread per test process, as pytest-xdist starts a process per core, and Triton's interpreter for its kernels.

How many cases the fuzzed tests try: a few, the same ones every time; ``pytest -m fuzz --fuzz``: 2,000 other ones, in about five
minutes; ``pytest -m fuzz --fuzz-more``: for a night.
"""

import logging
import os

for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"
os.environ["TRITON_INTERPRET"] = "1"  # Triton asks when it is imported

import pytest  # noqa: E402
import torch  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from mmengine.fileio.handlers import file_handlers  # noqa: E402
from mmengine.registry import DefaultScope  # noqa: E402

import mmlisa  # noqa: E402, F401 (tests may import mmdet first, which needs mmcv's operators)

torch.set_num_threads(1)
# PyTorch sets up its autograd once per process. Without this, a test that exports or compiles before the first backward pass
# would leave a process whose forks cannot train.
torch.ones(1, requires_grad=True).sum().backward()
# Loggers of earlier tests write to streams that pytest has closed.
logging.raiseExceptions = False


FILE_HANDLERS = dict(file_handlers)
CASES = {"suite": 30, "fuzz": 200, "fuzz_more": 20_000}  # per fuzzed test
for profile, cases in CASES.items():
    # Cases are slow or quick by what they build, and fixtures are folders that a case may overwrite.
    settings.register_profile(
        profile,
        max_examples=cases,
        deadline=None,
        derandomize=profile == "suite",
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )


def pytest_addoption(parser):
    parser.addoption("--fuzz", action="store_true", help="2,000 cases in all fuzzed tests")
    parser.addoption("--inductor", action="store_true", help="compile the backbones to machine code: needs a compiler")
    parser.addoption("--fuzz-more", action="store_true", help="20,000 cases in each fuzzed test")


def pytest_configure(config):
    chosen = [name for name in ("fuzz_more", "fuzz") if config.getoption(name)]
    settings.load_profile(chosen[0] if chosen else "suite")


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marker
def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("slow") is None:
            item.add_marker("quick")


@pytest.fixture(autouse=True)
def no_default_scope_left_behind():
    """MMEngine's default scope is global: a test that builds a config must not decide where the next one searches."""
    yield
    DefaultScope._instance_dict.clear()
    file_handlers.update(FILE_HANDLERS)  # a tool that ran in this process made them refuse pickles


@pytest.fixture
def figures(monkeypatch) -> list[Figure]:
    """The figures that matplotlib saves during a test, to look at what they show."""
    saved = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *args, **kwargs: saved.append(figure))
    return saved
