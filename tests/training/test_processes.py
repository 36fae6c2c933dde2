"""Two processes on CPUs train, stop and fail together."""

import os
import signal
import socket
import traceback
from collections.abc import Callable

import pytest
import torch
from mmengine.dist import get_rank

from helpers.toy_runner import VALIDATION, runner
from mmlisa.checkpoints import read_checkpoint
from mmlisa.training.config import PROCESSES
from mmlisa.training.runner import train


def in_two_processes(function: Callable[[], None], launcher: str = "pytorch") -> list[int]:
    """Run a function in forked processes of one group, as a launcher starts them, and return their exit codes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children = []
    for rank in "01":
        if child := os.fork():
            children.append(child)
            continue
        signal.alarm(120)
        number, place = PROCESSES[launcher]
        os.environ |= {
            number: "2",
            place: rank,
            "LOCAL_RANK": rank,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
        code = 1
        try:
            function()
            code = 0
        except SystemExit as stopped:
            code = stopped.code
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


@pytest.mark.nightly
def test_two_processes(tmp_path):
    def run(**options) -> None:
        both = runner(tmp_path, iterations=20, **{**VALIDATION, "launcher": "pytorch", **options})
        if get_rank() == 0:  # the other one gets the signal or the broken loss
            both.model.module.signal_at = both.model.module.broken_at = -1
        train(both)
        weights = [torch.zeros(4), torch.zeros(4)]
        torch.distributed.all_gather(weights, both.model.module.layer.weight.detach()[0])
        assert torch.equal(*weights)

    assert in_two_processes(lambda: run(model=dict(signal_at=3), launcher="slurm"), "slurm") == [143, 143]
    assert read_checkpoint(tmp_path / "iter_10.pth")["meta"]["iter"] == 10
    broken = in_two_processes(lambda: run(resume=True, model=dict(broken_at=4)))
    assert 0 not in broken
    assert (tmp_path / "last_checkpoint").read_text() == str(tmp_path / "iter_12.pth")
    assert in_two_processes(lambda: run(resume=True)) == [0, 0]
    assert (tmp_path / "iter_20.pth").exists()
