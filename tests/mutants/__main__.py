"""How many small errors, put into the code one at a time, do the tests notice?

    python tests/mutants [--only WORD] [--quick] [--again] [--check] [--out FILE]

Each error of ``mutants.yaml`` is put into a temporary copy of the repository; then the tests run that ought to notice it, and
where they do not, all tests of that part of the package. What is known already is not run again, so that a run that was stopped
goes on; ``--again`` repeats the errors that nothing noticed. Exit code 1: less than 90% were noticed.
"""

import argparse
import compileall
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path

from mutants import ROOT, Mutant, load_mutants

GOAL = 0.9
# Seconds for the tests that ought to notice an error, and for those that follow.
LIMITS = (300, 900)
_LIBRARIES = (
    *("cv2", "hypothesis", "imagecorruptions", "imgaug.augmenters", "matplotlib.pyplot", "mmcv.cnn", "mmcv.transforms"),
    *("mmengine.runner", "mmengine.visualization", "pycocotools.coco", "pytest", "shapely.geometry", "timm"),
    *("scipy.optimize", "sklearn.gaussian_process", "torch.fx.experimental.symbolic_shapes"),
)
_ENV = dict(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", TRITON_INTERPRET="1", PYTHONDONTWRITEBYTECODE="1")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python tests/mutants", description=__doc__.split("\n\n")[0])
    parser.add_argument("--only", default="", metavar="WORD", help="errors in files whose path has this in it")
    parser.add_argument("--again", action="store_true", help="repeat those that nothing noticed")
    parser.add_argument("--check", action="store_true", help="only see that the tests pass on the code as it is")
    parser.add_argument("--quick", action="store_true", help="only the tests that ought to notice an error")
    parser.add_argument("--out", type=Path, default=ROOT / "work_dirs" / "mutants.json", metavar="FILE")
    args = parser.parse_args()

    mutants = [mutant for mutant in load_mutants() if args.only in mutant.file]
    known = json.loads(args.out.read_text()) if args.out.is_file() else {}
    results = {m.key: known[m.key] for m in mutants if m.key in known and not (args.again and survived(known[m.key]))}
    left = [mutant for mutant in mutants if mutant.key not in results]
    print(f"{len(mutants)} errors, {len(left)} to try", flush=True)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = copy_repository(Path(folder) / "copy")
        _import_what_never_changes()
        if args.check:
            return check(mutants, copy)
        start = time.monotonic()
        for done, mutant in enumerate(left, 1):
            results[mutant.key] = try_out(mutant, copy, args.quick)
            args.out.parent.mkdir(parents=True, exist_ok=True)
            args.out.write_text(json.dumps({**known, **results}, indent=1))
            minutes = (time.monotonic() - start) / done * (len(left) - done) / 60
            outcome, seconds = (results[mutant.key][key] for key in ("outcome", "seconds"))
            print(f"[{done}/{len(left)}, {minutes:.0f} min left] {outcome:8} {seconds:4.0f} s  {mutant}", flush=True)
    return report(results)


def check(mutants: list[Mutant], copy: Path) -> int:
    """Tests that fail without any error would notice all of them."""
    selections = list(dict.fromkeys(mutant.tests for mutant in mutants))
    failing = []
    for done, tests in enumerate(selections, 1):
        failing += [tests] * is_noticed(tests, copy, LIMITS[0])
        print(f"[{done}/{len(selections)}] {'FAILS ' if tests in failing else 'passes'} {tests}", flush=True)
    return int(bool(failing))


def survived(result: dict) -> bool:
    return result["outcome"] == "survived"


def report(results: dict[str, dict]) -> int:
    alive = [result for result in results.values() if survived(result)]
    for result in alive:
        print(f"nothing noticed  {result['file']}: {result['old']!r} -> {result['new']!r}")
    share = 1 - len(alive) / max(len(results), 1)
    print(f"noticed: {len(results) - len(alive)} of {len(results)}, {share:.0%}")
    return int(share < GOAL)


def copy_repository(target: Path) -> Path:
    """What git knows or would add, compiled."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    compileall.compile_dir(target / "mmlisa", quiet=2)
    return target


def try_out(mutant: Mutant, copy: Path, quick: bool) -> dict:
    """Puts the error into the copy, runs the tests, takes it out again."""
    path, start = copy / mutant.file, time.monotonic()
    text = path.read_text()
    path.write_text(mutant.apply(text))
    try:
        for tests, limit in list(zip((mutant.tests, mutant.wider_tests), LIMITS, strict=True))[: 1 if quick else 2]:
            if noticed := is_noticed(tests, copy, limit):
                break
    finally:
        path.write_text(text)
    outcome = "noticed" if noticed else "survived"
    return {**mutant._asdict(), "outcome": outcome, "by": tests, "seconds": round(time.monotonic() - start, 1)}


def is_noticed(tests: str, copy: Path, limit: float) -> bool:
    """Whether the tests fail, in a child that need not import torch and the like again; what does not end has not failed.

    Raises:
        RuntimeError: pytest did not run any.
    """
    pid = os.fork()
    if not pid:
        _run_tests(tests, copy)
    end = time.monotonic() + limit
    while time.monotonic() < end:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            if code > 2:
                raise RuntimeError(f"pytest {tests}: exit code {code}; no tests were run")
            return code != 0
        time.sleep(0.1)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return False


def _run_tests(tests: str, copy: Path) -> None:
    """Never returns."""
    os.setsid()
    os.chdir(copy)
    os.environ["PYTHONPATH"] = str(copy)
    sys.path[:0] = [str(copy)]
    with open(os.devnull, "r+b") as nowhere:
        for stream in (0, 1, 2):
            os.dup2(nowhere.fileno(), stream)
    import pytest

    code = 3
    try:
        code = int(pytest.main([*shlex.split(tests), "-x", "-n", "0", "-p", "no:cacheprovider", "--no-header"]))
    finally:
        os._exit(code)


def _import_what_never_changes() -> None:
    """Once, before the children are made: what takes long and imports neither mmlisa nor mmcv's operators."""
    for name in _LIBRARIES:
        import_module(name)


if __name__ == "__main__":
    os.environ.update(_ENV)
    sys.dont_write_bytecode = True
    sys.exit(main())
