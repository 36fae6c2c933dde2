"""Memory that a call or a process takes."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch


def peak_extra_bytes(function: Callable[[], Any], device: str = "cpu") -> int:
    """Return the most bytes that PyTorch holds during a call beyond those held before it; outputs count.

    The function is called twice. The first call warms up, the second is measured.
    """
    function()
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        function()
        return torch.cuda.max_memory_allocated() - before
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        function()
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    changes = [e.nbytes() for e in sorted(events, key=lambda e: e.start_ns())]
    return int(np.cumsum(changes).max(initial=0))


def peak_megabytes(*, of_children: bool = False) -> float:
    """Return the largest resident memory of this process so far in MiB, or of the processes that it started and that ended.

    0 where the system does not report it.
    """
    try:
        import resource
    except ImportError:  # Windows
        return 0.0
    peak = resource.getrusage(resource.RUSAGE_CHILDREN if of_children else resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10
