"""The machine's processors: what other programs take, and how the threads of this one wait for each other.

This module imports the standard library only: the environment must be set before PyTorch is imported.
"""

import os
from pathlib import Path
from time import monotonic, process_time, sleep

# How often an idle thread of GNU's OpenMP (PyTorch's on Linux) looks for work before it sleeps. On a free machine, LONG (half a
# millisecond) is as fast as looking without an end. Beside other programs, it takes processors that they need: SHORT is better
# (docs/benchmarks/threads.md).
LONG, SHORT = "30000", "300"
_WATCHED = 0.2  # seconds


class Others:
    """``others()``: processors that other processes took, on average since the last call. 0 where the system does not tell."""

    def __init__(self) -> None:
        self._last = _times()

    def __call__(self) -> float:
        before, self._last = self._last, _times()
        seconds, busy, own = (now - then for now, then in zip(self._last, before, strict=True))
        return max(busy - own, 0.0) / seconds


def _times() -> tuple[float, float, float]:
    """Seconds of the clock, of this process's processors at work, and of this process."""
    statistics, busy = Path("/proc/stat"), 0
    if not statistics.is_file():  # Linux alone has it
        return monotonic(), 0.0, 0.0
    lines = {words[0]: words[1:9] for words in map(str.split, statistics.read_text().splitlines()) if words}
    for number in os.sched_getaffinity(0):
        user, nice, system, _idle, _waiting, *interrupts = lines.get(f"cpu{number}", [0] * 8)
        busy += sum(map(int, (user, nice, system, *interrupts)))
    return monotonic(), busy / os.sysconf("SC_CLK_TCK"), process_time()


def count_processors() -> int:
    """Return the number of processors that this process may use; a scheduler may give it a part of the machine's."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def choose_waiting(may_spin: bool) -> None:
    """Set how long an idle OpenMP thread spins before it sleeps, unless the environment says it.

    One that sleeps at once has to be woken for each of many small operations. Other implementations than GNU's follow
    ``OMP_WAIT_POLICY``.

    Args:
        may_spin: threads spin for long on a free machine. Other programs may start later, so this is for a program that looks
            again while it runs, or that needs a quiet machine.
    """
    if {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"} & os.environ.keys():
        return
    os.environ.update(OMP_WAIT_POLICY="PASSIVE", GOMP_SPINCOUNT=SHORT)
    if may_spin and os.environ.get("OMP_NUM_THREADS") != "1":
        others = Others()
        sleep(_WATCHED)
        if others() < 0.5:
            os.environ["GOMP_SPINCOUNT"] = LONG
