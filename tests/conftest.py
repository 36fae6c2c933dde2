"""One thread per test process: pytest-xdist starts a process per core."""

import os

for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import torch  # noqa: E402

torch.set_num_threads(1)
