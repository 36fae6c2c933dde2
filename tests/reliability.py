"""Writes docs/reliability.md: runs the tests behind each line of its table, and counts what passed.

python tests/reliability.py            # a few minutes
python tests/reliability.py --fuzz     # with 2,000 generated cases instead of a few hundred
"""

import argparse
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
# Each row: a fault, the outcome, and its tests as a file and parts of their names.
FAULTS = [
    (
        "SIGTERM during validation with averaged weights",
        "the checkpoint has trained and averaged weights in the right places, also if the workers receive the signal",
        "tests/training/test_resuming.py",
        "signal_during_validation",
    ),
    (
        "resumed with another batch size, data set, number of workers or learning rate",
        "trains to the end; the learning rate of the checkpoint stays, with a warning",
        "tests/training/test_resuming.py",
        "other_data or learning_rate",
    ),
    (
        "resumed from edited metadata, or with another number of classes",
        "refused; names the entry",
        "tests/training/test_resuming.py",
        "edited_metadata or number_of_classes",
    ),
    (
        "SIGKILL in an iteration",
        "resumes with bit-for-bit equal weights and moments; epochs or iterations, with or without loader workers",
        "tests/training/test_seeding.py",
        "iteration_",
    ),
    (
        "SIGKILL in the middle of a save",
        "ignores the incomplete file; resumes bit for bit from the checkpoint before",
        "tests/training/test_seeding.py",
        "resumed[save",
    ),
    (
        "another number of loader workers",
        "the same losses",
        "tests/training/test_seeding.py",
        "number_of_workers",
    ),
    (
        "SIGTERM, SIGINT, a second signal",
        "a checkpoint of the last iteration, exit code 143 or 130; the second exits at once",
        "tests/training/test_interrupts.py",
        "",
    ),
    (
        "a loss of NaN or infinity, as after lr=1e9",
        "stops before saving; the error names the iteration, the losses and the last good checkpoint",
        "tests/training/test_hooks.py",
        "non_finite",
    ),
    (
        "a killed loader worker",
        "the error names the worker, the last checkpoint and the remedy",
        "tests/training/test_hooks.py",
        "killed_worker",
    ),
    (
        "SIGKILL while loader workers run",
        "Linux ends the workers; they would wait for each other for ever",
        "tests/training/test_interrupts.py",
        "no_workers",
    ),
    (
        "a full disk",
        "keeps existing files; stops or continues, as configured",
        "tests/training/test_saving.py",
        "failed_save or cannot_be_written_leaves",
    ),
    (
        "a work dir that cannot be written",
        "an error names it before anything is built",
        "tests/training/test_saving.py",
        "folder_that_cannot",
    ),
    (
        "two trainings into one folder",
        "the second is refused with a message about the first; a killed training leaves no lock",
        "tests/training/test_saving.py",
        "one_training",
    ),
    (
        "one of two processes dies",
        "the other ends with an error; the last checkpoint is complete",
        "tests/training/test_processes.py",
        "dead_process",
    ),
    (
        "a loss of NaN in one of two processes",
        "both stop before they save",
        "tests/training/test_processes.py",
        "broken_loss",
    ),
    (
        "two processes instead of one",
        "the same loss curve and weights up to rounding; metrics counted once; sharded weights have the same gradients",
        "tests/training/test_processes.py",
        "two_processes_train or sharded",
    ),
    (
        "checkpoints that run code",
        "refused without running it: files and URLs, inside and outside the tools",
        "tests/checkpoints/test_download.py",
        "runs_code or safely",
    ),
    (
        "hostile pickles",
        "refused, whichever globals they name and objects they build",
        "tests/checkpoints/test_reading.py",
        "hostile or mmengine_runs",
    ),
    (
        "bombs: tensors and arrays larger than their file",
        "refused before anything is allocated",
        "tests/checkpoints/test_reading.py",
        "hold or compressed or takes_no_memory or declares",
    ),
    (
        "flipped bits, changed tensors",
        "refused by checksum",
        "tests/checkpoints/test_reading.py",
        "flipped or checksum",
    ),
    (
        "a truncated newest checkpoint",
        "resuming skips it and names it",
        "tests/checkpoints/test_latest.py",
        "damaged or newest",
    ),
    (
        "files without weights, or with another model's",
        "refused; the error lists names and counts",
        "tests/checkpoints/test_guarding.py",
        "values",
    ),
    (
        "incomplete downloads and wrong files",
        "refused; the partial file is removed",
        "tests/checkpoints/test_download.py",
        "failed or cache",
    ),
    (
        "bad annotations",
        "skipped or refused; the message gives id and reason",
        "tests/datasets/test_annotations.py",
        "",
    ),
    (
        "truncated and damaged images",
        "skipped or refused; the message names the file",
        "tests/datasets/test_transforms.py",
        "",
    ),
    (
        "calls in the source that run code from data",
        "none found in any file",
        "tests/test_security.py",
        "",
    ),
]
FUZZED = [
    (
        "damaged checkpoint files: cut, flipped, overwritten; archives, streams, pickles",
        "tests/checkpoints/test_reading.py",
        "damage",
    ),
    (
        "pickles with every instruction that the reader supports",
        "tests/checkpoints/test_reading.py",
        "any_program",
    ),
    (
        "invalid values in the configs of operators, backbones, archs, necks and heads",
        "tests/models/test_fuzzed_configs.py",
        "",
    ),
    (
        "invalid values anywhere in annotation files",
        "tests/datasets/test_fuzzed_annotations.py",
        "",
    ),
]


def run(*options: str) -> tuple[dict[str, bool], dict[str, int]]:
    """Runs all of it in one process: which tests passed, and how many cases hypothesis tried in each, by their ids."""
    files = sorted({file for *_, file, _ in (*FAULTS, *FUZZED)})
    with TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", *files, "-n", "0", "--hypothesis-show-statistics", *options]
        done = subprocess.run([*command, f"--junitxml={report}"], cwd=ROOT, capture_output=True, text=True)
        if not report.exists():
            raise RuntimeError(done.stdout + done.stderr)
        results = {}
        for case in ET.parse(report).getroot().iter("testcase"):
            if case.find("skipped") is None:
                name = f"{case.attrib['classname'].replace('.', '/')}.py::{case.attrib['name']}"
                results[name] = case.find("failure") is None and case.find("error") is None
    cases: dict[str, int] = {}
    for name, printed in re.findall(r"^(tests/\S+::.+):\n\n((?:  .*\n)+)", done.stdout, re.MULTILINE):
        cases[name] = sum(map(int, re.findall(r"(\d+) passing", printed)))
    return results, cases


def matching(found: dict, file: str, names: str) -> list:
    return [
        v for name, v in found.items() if name.startswith(f"{file}::") and any(n in name for n in names.split(" or "))
    ]


def shown(file: str, names: str, *options: str) -> str:
    names = names.replace("resumed[save", "resumed and save")
    return "`" + " ".join(["pytest", file, *([f"-k '{names}'"] if names else []), *options]) + "`"


def commit() -> str:
    return subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, text=True).strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--fuzz", action="store_true", help="2,000 generated cases")
    options = ["--fuzz"] if parser.parse_args().fuzz else []
    results, cases = run(*options)
    command = " ".join(["python tests/reliability.py", *options])
    lines = ["# Fault injection", "", f"Written by `{command}` on {date.today()}, at commit {commit()}.", ""]
    lines += ["| fault or input | what happens | tests passed | command |", "|---|---|---|---|"]
    for fault, outcome, file, names in FAULTS:
        passed = matching(results, file, names)
        lines.append(f"| {fault} | {outcome} | {sum(passed)} of {len(passed)} | {shown(file, names)} |")
    lines += ["", "## Cases generated by Hypothesis", ""]
    lines += ["Each case ends with a result or with the documented exception.", ""]
    lines += ["| input | cases | tests passed | command |", "|---|---|---|---|"]
    for kind, file, names in FUZZED:
        tried, passed = matching(cases, file, names), matching({n: results[n] for n in cases}, file, names)
        lines.append(
            f"| {kind} | {sum(tried)} | {sum(passed)} of {len(passed)} | {shown(file, names, '-m fuzz', *options)} |"
        )
    measured = subprocess.run([sys.executable, "tests/mistakes.py"], cwd=ROOT, capture_output=True, text=True).stdout
    lines += ["", "## Mistakes of a new user", ""]
    lines += [
        "Time from the command to its message, by `python tests/mistakes.py` on a quiet machine.",
        "",
        measured.strip(),
    ]
    (ROOT / "docs" / "reliability.md").write_text("\n".join(lines) + "\n")
    sys.exit(not all(results.values()))


if __name__ == "__main__":
    main()
