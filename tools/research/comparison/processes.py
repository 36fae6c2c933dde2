"""Runner of the missing jobs of a suite, each in its own process; the failure of one job does not end the others.

This module imports nothing heavy. The processes are forked from a server that has imported the libraries once.
"""

import json
import multiprocessing
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Any

from ..environment import describe_environment
from .jobs import Job, read
from .suites import TASKS


def run_all(todo: Sequence[Job], root: Path, parallel: int = 1) -> list[str]:
    """Run the jobs whose results are missing.

    Args:
        todo: measurements run first and one at a time, so that no training disturbs them.
        root: where the results go.
        parallel: trainings at once.

    Returns:
        A line about each failed job, and about missing data.
    """
    from tqdm import tqdm

    todo = [job for job in todo if read(job, root) is None]
    if not todo:
        return []
    environment = describe_environment()  # once, because the code may be edited during the trainings
    # Processes are forked from one that has imported everything: imports take longer than a small training.
    # It may look for a GPU, but not open it: an open GPU cannot be used after a fork.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    forks = "forkserver" in multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("forkserver" if forks else "spawn")
    context.set_forkserver_preload(["research.comparison.libraries"])
    failures = []
    for make, folder in dict.fromkeys(TASKS[job.comparison.task].data for job in todo if job.candidate is not None):
        if failure := _run(context, partial(_prepare, make, folder), root / f"{make}.log"):
            failures.append(failure)
            todo = [job for job in todo if job.candidate is None or TASKS[job.comparison.task].data != (make, folder)]
    with tqdm(total=len(todo), desc="comparison", unit="run", smoothing=0.1) as bar:

        def finish(job: Job) -> None:
            target = root / job.name / job.file
            if failure := _run(context, partial(_work, job, target, environment), target.with_suffix(".log")):
                failures.append(f"{job}: {failure}")
                bar.write(f"failed: {failures[-1]}")
            bar.update()

        for job in todo:
            if job.candidate is None:
                finish(job)
        with ThreadPoolExecutor(parallel) as pool:
            futures = [pool.submit(finish, job) for job in todo if job.candidate is not None]
            try:
                for future in as_completed(futures):
                    future.result()
            except KeyboardInterrupt:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    return failures


def _run(context: Any, function: Callable[[], None], log: Path) -> str | None:
    """Call a function in another process with its output in ``log``; return the last line of the output if it fails."""
    log.parent.mkdir(parents=True, exist_ok=True)
    process = context.Process(target=_logged, args=(function, log))
    process.start()
    process.join()
    if process.exitcode == 0:
        return None
    lines = log.read_text().strip().splitlines() if log.is_file() else []
    return f"{lines[-1] if lines else f'exit code {process.exitcode}'} ({log})"


def _logged(function: Callable[[], None], log: Path) -> None:
    with log.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        function()
    except BaseException:
        traceback.print_exc()
        sys.exit(1)


def _prepare(make: str, folder: str) -> None:
    from . import data

    getattr(data, make)(folder)


def _work(job: Job, target: Path, environment: dict[str, str]) -> None:
    """Write the result of a job when it is whole."""
    from . import runs

    result = runs.measure(job) if job.candidate is None else runs.train(job, target.with_suffix(""))
    unfinished = target.with_suffix(".tmp")
    unfinished.write_text(json.dumps(dict(result, config=job.config(), **environment), indent=1) + "\n")
    unfinished.rename(target)
