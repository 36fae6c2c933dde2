"""Memory that a call takes."""

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
