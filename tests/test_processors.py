"""How idle threads wait: long on a free machine, shortly beside other programs, and as the user says."""

import os
import subprocess
import sys

import pytest

from mmlisa import processors


@pytest.mark.parametrize("chosen", ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"])
def test_the_users_choice_stays(monkeypatch, chosen):
    monkeypatch.setattr(os, "environ", {chosen: "1"})
    processors.choose_waiting(may_spin=True)
    assert os.environ == {chosen: "1"}


@pytest.mark.parametrize(
    ("taken", "may_spin", "threads", "rounds"),
    [
        (0.0, True, None, "30000"),
        (0.4, True, "2", "30000"),
        (0.6, True, None, "300"),
        (7.0, True, None, "300"),
        (0.0, False, None, "300"),
        (0.0, True, "1", "300"),
    ],
)
def test_others_shorten_the_waiting(monkeypatch, taken, may_spin, threads, rounds):
    """Long waiting is for programs that look again, and for threads that have others to wait for."""
    before = {"OMP_NUM_THREADS": threads} if threads else {}
    monkeypatch.setattr(os, "environ", dict(before))
    monkeypatch.setattr(processors, "Others", lambda: lambda: taken)
    processors.choose_waiting(may_spin)
    assert os.environ == before | {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": rounds}


def test_others_are_all_but_this_process(monkeypatch):
    """Of six seconds of work in four, this process did two."""
    clock = iter([(100.0, 50.0, 7.0), (104.0, 56.0, 9.0), (106.0, 56.0, 9.5)])
    monkeypatch.setattr(processors, "_times", lambda: next(clock))
    others = processors.Others()
    assert others() == 1.0
    assert others() == 0.0, "rounding does not make it negative"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells")
def test_a_process_at_work_is_seen():
    seconds, busy, own = processors._times()
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.5: pass"], check=True)
    later = processors._times()
    assert later[1] - busy >= 0.45
    assert later[2] - own < 0.2
    assert later[0] - seconds >= 0.5


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells")
def test_processors_of_others_do_not_count(monkeypatch):
    """A scheduler may give a process a part of the machine."""
    lines = "cpu  999 0 0 0\ncpu0 500 0 0 9 9 0 0 0 0 0\ncpu1 100 20 30 9 9 1 2 3 7 7\nintr 1"
    monkeypatch.setattr(processors.Path, "read_text", lambda self: lines)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {1})
    assert processors._times()[1] == 156 / os.sysconf("SC_CLK_TCK")
    assert processors.count_processors() == 1


def test_a_system_that_does_not_tell(monkeypatch):
    monkeypatch.setattr(processors.Path, "is_file", lambda self: False)
    others = processors.Others()
    sum(range(10**6))
    assert others() == 0.0
