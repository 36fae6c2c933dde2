"""Code that runs in another process, so that a crash or an endless loop is a result."""

import json
import subprocess
import sys

_RUN_PROBES = """
import contextlib, io, json, os, sys, traceback
report = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
for name, code in json.loads(sys.argv[1]).items():
    printed, error = io.StringIO(), ""
    try:
        with contextlib.redirect_stdout(printed):
            exec(code, {})
    except BaseException as raised:
        error = "".join(traceback.format_exception_only(raised)).strip().splitlines()[-1]
    print(json.dumps([name, error, printed.getvalue()]), file=report, flush=True)
"""


def run_probes(probes: dict[str, str], timeout: float = 300) -> dict[str, tuple[str, str]]:
    """Run pieces of code in another process and return the error (empty on success) and the output of each, by name.

    After a crash, or ``timeout`` seconds, the rest is run in a new process.
    """
    results: dict[str, tuple[str, str]] = {}
    while rest := {name: code for name, code in probes.items() if name not in results}:
        command = [sys.executable, "-c", _RUN_PROBES, json.dumps(rest)]
        try:
            done = subprocess.run(command, capture_output=True, timeout=timeout)
            output, end = done.stdout, f"crashed (signal {-done.returncode})"
        except subprocess.TimeoutExpired as stopped:
            output, end = stopped.stdout or b"", f"did not finish within {timeout:.0f} s"
        reports = map(json.loads, output.decode(errors="replace").splitlines())
        results |= {name: (error, printed) for name, error, printed in reports}
        if culprit := next((name for name in rest if name not in results), None):
            results[culprit] = end, ""
    return results
