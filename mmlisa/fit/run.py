"""The steps of ``mmlisa fit``, each of which can be interrupted and repeated.

``check-data``, ``train``, ``test`` and ``export`` are run as commands that the user could type, each in a process of its own. No
command inherits memory or settings from another, and a crash is reported in one line.
"""

import ctypes
import hashlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Any

from mmlisa.datasets.folder import Dataset, walk
from mmlisa.datasets.splitting import SEED, prepare_data


@dataclass(frozen=True)
class Options:
    """What the user asks for; a run with other options has a folder of its own. See ``mmlisa fit --help``."""

    data: str
    task: str = ""
    model: str = "auto"
    weights: str | None = None
    minutes: float | None = None
    epochs: int | None = None
    size: int | None = None
    batch: int | None = None
    device: str | None = None

    def __str__(self) -> str:
        """The arguments of the command."""
        given = {key: value for key, value in asdict(self).items() if value not in (None, "", "auto")}
        return shlex.join(
            [given.pop("data"), *(word for key, value in given.items() for word in (f"--{key}", str(value)))]
        )

    def folder(self) -> Path:
        digest = hashlib.sha256(json.dumps(asdict(self)).encode()).hexdigest()[:6]
        return Path("work_dirs") / "fit" / f"{Path(self.data).name or 'data'}-{digest}"


@dataclass
class Run:
    """A folder with the results of the finished steps.

    Attributes:
        folder: where they are.
        options: of the run.
        done: seconds that each finished step took, by its name.
        facts: what later steps and the report need to know of the earlier ones.
        data: hash of the names, sizes and dates of the user's files when they were read.
    """

    folder: Path
    options: Options
    done: dict[str, float] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    data: str = ""

    @classmethod
    def open(cls, folder: Path, options: Options) -> "Run":
        """The run of a folder, or a new one.

        Raises:
            ValueError: the folder holds a run with other options, or something else.
        """
        state = folder / "run.json"
        if state.is_file():
            content = json.loads(state.read_text())
            known, asked = content["options"], asdict(options)
            if other := [
                f"{key}={known.get(key)!r}, not {asked[key]!r}" for key in asked if known.get(key) != asked[key]
            ]:
                raise ValueError(f"--work-dir {str(folder)!r} holds a run with {', '.join(other)}; name another folder")
            return cls(folder, options, content["done"], content["facts"], content.get("data", ""))
        # What a kill leaves of a file that was being written has a hidden name.
        if folder.exists() and (not folder.is_dir() or any(folder.glob("[!.]*"))):
            raise ValueError(
                f"--work-dir {str(folder)!r} holds something other than a run of mmlisa fit; name another folder"
            )
        return cls(folder, options)

    @property
    def data_changed(self) -> bool:
        """Whether the user's files differ from those that the config was written for."""
        return "config" in self.done and self.data not in ("", _hash_of_files(self.options.data))

    def save(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        content = {"options": asdict(self.options), "data": self.data, "done": self.done, "facts": self.facts}
        write(self.folder / "run.json", json.dumps(content, indent=1))

    @property
    def config(self) -> Path:
        return self.folder / "config.py"

    @property
    def checkpoint(self) -> Path | None:
        """The best checkpoint, or else the last."""
        best = sorted(self.folder.glob("train/best_*.pth"), key=lambda path: path.stat().st_mtime)
        last = self.folder / "train" / "last_checkpoint"
        return best[-1] if best else Path(last.read_text()) if last.is_file() else None


def _hash_of_files(folder: str) -> str:
    files = sorted((name, (Path(folder) / name).lstat()) for name in walk(Path(folder)))
    states = [(name, state.st_size, state.st_mtime_ns) for name, state in files]
    return hashlib.sha256(json.dumps(states).encode()).hexdigest()


def write(path: Path, text: str) -> None:
    """Write a text file: whole, or not at all."""
    from mmlisa.checkpoints.writing import writing_whole  # imports PyTorch

    with writing_whole(path) as file:
        file.write(text.encode())


def fit(run: Run, *, dry_run: bool = False) -> None:
    """Runs the steps that are not done yet.

    Args:
        run: the folder; see :meth:`Run.open`.
        dry_run: stop after the config.

    Raises:
        ValueError, OSError: the data cannot be used.
        ChildProcessError: a step failed.
        KeyboardInterrupt: the user stopped it; what is done is kept.
    """
    if Path(os.path.abspath(run.folder)).is_relative_to(os.path.abspath(run.options.data)):
        raise ValueError(
            f"the results would go into {run.folder}, inside of the data, which are never changed: start the command elsewhere, "
            "or name a folder with --work-dir"
        )
    if run.options.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # for all steps, which inherit it
    for name in ["config"] if dry_run else STEPS:
        if name not in run.done:
            print(f"\n--- {name} ---", flush=True)
            start = perf_counter()
            STEPS[name](run)
            run.done[name] = round(perf_counter() - start, 1)
            run.save()
        elif name == "config":
            print(run.config.read_text())


# --- steps -------------------------------------------------------------------------------------------------------------------


def _configure(run: Run) -> None:
    from mmlisa.training.config import check_default_device  # imports MMEngine

    from .plan import adjust, choose_preset, make_plan, write_config

    options, folder = run.options, Path(os.path.abspath(run.folder))
    if options.device:
        check_default_device(options.device)
    run.data = _hash_of_files(options.data)
    dataset = prepare_data(options.data, options.task)
    notes = dataset.notes
    counts = {name: len(dataset.split(name)) for name in ("train", "val", "test")}
    shown = ", ".join(
        f"{number} to {name}"
        for name, number in zip(("train", "validate", "test"), counts.values(), strict=True)
        if number
    )
    print(f"{dataset.format}, {dataset.task}; images: {shown}; classes: {', '.join(dataset.classes)}", flush=True)
    run.save()
    _write_data(run, dataset)

    import torch

    on_gpu = torch.cuda.is_available()
    preset, reason = choose_preset(dataset, options.model, options.weights, on_gpu)
    if preset.weights and not preset.weights.startswith("timm:") and not Path(preset.weights).is_file():
        raise ValueError(f"--weights {preset.weights!r} is neither a file nor 'timm:NAME'")
    plan = make_plan(dataset, preset, on_gpu, side=options.size, batch=options.batch, epochs=options.epochs)
    plan.reasons["model"] = reason
    title = f"Written by: mmlisa fit {options}. To repeat the training: mmlisa train {shlex.quote(str(run.config))}"
    start = f"The training starts from {preset.weights or 'random weights'}."

    print(*notes, "measuring a training step …", sep="\n", flush=True)
    trial, result = folder / "probe" / "config.py", folder / "probe" / "result.json"
    write(trial, write_config(plan, dataset, folder, title, start))
    _call("-m", "mmlisa.fit.probe", str(trial), str(result), preset.weights, show=False)
    probe = json.loads(result.read_text())
    if probe["unavailable"]:
        start = (
            f"{preset.weights} could not be loaded. The training starts from random weights, which lowers the accuracy."
        )
        notes.append(f"warning: {start} ({probe['unavailable']})")
        print(notes[-1])
        plan.preset = replace(preset, weights="")
    if warning := adjust(plan, probe, options.minutes, keep_batch=options.batch is not None):
        notes.append(warning)
        print(warning)
    text = write_config(plan, dataset, folder, title, start)
    print(text, flush=True)
    run.facts = {
        "format": dataset.format, "task": dataset.task, "classes": dataset.classes, "counts": counts, "notes": notes,
        "root": str(dataset.root), "side": plan.side, "steps": plan.steps, "batch": plan.batch,
        "label_map": {str(value): label for value, label in dataset.label_map.items()},
    }  # fmt: skip
    write(run.config, text)


def _write_data(run: Run, dataset: Dataset) -> None:
    """Annotations in the form that the config names; images are referenced where they are."""
    for name in ("train", "val", "test"):
        samples = dataset.split(name)
        if dataset.task == "detection":
            write(run.folder / "data" / f"{name}.json", json.dumps(dataset.to_coco(name)))
        else:
            second = "seg_map" if dataset.task == "segmentation" else "label"
            separator = "\t" if dataset.task == "segmentation" else " "
            lines = [f"{sample.path}{separator}{getattr(sample, second)}" for sample in samples]
            write(run.folder / "data" / f"{name}.txt", "\n".join(lines))
    splits = {name: [sample.path for sample in dataset.split(name)] for name in ("train", "val", "test")}
    write(run.folder / "data" / "split.json", json.dumps({"seed": SEED, **splits}, indent=1))


def _check_data(run: Run) -> None:
    splits = [name for name, number in run.facts["counts"].items() if number]
    # 1: problems, which are listed; what a training cannot use was left out when the folder was read
    _mmlisa("check-data", run.config, "--split", *splits, accepted=(0, 1))


def _train(run: Run) -> None:
    folder = run.folder / "train"  # MMEngine writes the whole config there, under the same name
    resume = ["--resume"] if any(folder.glob("*.pth")) else []
    _mmlisa("train", run.config, "--work-dir", folder, *resume)
    from mmlisa.memory import peak_megabytes  # imports PyTorch

    run.facts["memory"] = peak_megabytes(of_children=True) / 2**10


def _test(run: Run) -> None:
    (run.folder / "test").mkdir(exist_ok=True)
    dump = ["--out", run.folder / "test" / "predictions.pkl"] if run.facts["task"] == "classification" else []
    _mmlisa("test", run.config, run.checkpoint, "--work-dir", run.folder / "test", *dump)


def _export(run: Run) -> None:
    run.facts["export"] = ""
    try:
        _mmlisa("export", *_export_words(run))
    except ChildProcessError as error:  # the report says so; the model itself is whole
        run.facts["export"] = str(error)


def _export_words(run: Run) -> list[object]:
    return [run.config, run.checkpoint, run.folder / "model.onnx", *["--size", *[run.facts["side"]] * 2]]


def _report(run: Run) -> None:
    from mmlisa.visualization.report import write_report

    facts, folder = run.facts, run.folder
    counts = facts["counts"]
    tested = f"{counts['test']} test" if counts["test"] else f"{counts['val']} validation"
    chosen = "" if counts["test"] else ", on which the checkpoint was chosen"
    summary = [
        f"{facts['format']}: {counts['train']} images to train on; the results are those of the {tested} images{chosen}",
        f"{facts['steps']} steps of {facts['batch']} images, longer side {facts['side']} pixels: {run.config}",
        *[f"the largest process took {facts['memory']:.1f} GiB of memory"] * bool(facts["memory"]),
        *facts["notes"],
        *[facts["export"]] * bool(facts["export"]),
    ]
    example = Path(facts["root"], json.loads((folder / "data" / "split.json").read_text())["val"][0])
    commands = {
        "draw predictions on images": command("infer", run.config, run.checkpoint, example),
        "test again": command("test", run.config, run.checkpoint, "--work-dir", folder / "test_again"),
        "train again from the config": command("train", run.config, "--work-dir", folder / "train_again"),
        "look at the training images": command("check-data", run.config, "--draw", 16),
        "export": command("export", *_export_words(run)),
    }
    score = write_report(
        folder,
        task=facts["task"],
        classes=facts["classes"],
        root=Path(facts["root"]),
        split="test" if counts["test"] else "val",
        summary=summary,
        seconds=run.done,
        commands=commands,
        label_map={int(value): label for value, label in facts["label_map"].items()},
    )
    print(f"{score}\n  checkpoint  {run.checkpoint}\n  report      {folder / 'report.html'}")
    print("\n".join(["Next:", *(f"  {line}" for line in commands.values())]))


STEPS: dict[str, Callable[[Run], None]] = {
    "config": _configure,
    "check-data": _check_data,
    "train": _train,
    "test": _test,
    "export": _export,
    "report": _report,
}


# --- processes ---------------------------------------------------------------------------------------------------------------


def command(name: str, *words: object) -> str:
    """A command as the user can type it."""
    return f"mmlisa {name} {shlex.join(map(str, words))}"


def _mmlisa(name: str, *words: object, accepted: Sequence[int] = (0,)) -> None:
    print(f"$ {command(name, *words)}", flush=True)
    _call("-m", "mmlisa", name, *map(str, words), accepted=accepted)


def _call(*words: str, show: bool = True, accepted: Sequence[int] = (0,)) -> None:
    """Run Python in a process of its own. After Ctrl-C it is asked to end and waited for, because it may save a checkpoint.

    Raises:
        ChildProcessError: an exit code that is not in ``accepted``; the message has the last error that was printed.
    """
    process = subprocess.Popen(
        [sys.executable, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,  # a terminal sends Ctrl-C to this process only
        preexec_fn=_end_with_parent if sys.platform == "linux" else None,
    )
    lines = []
    try:
        for line in process.stdout:
            lines.append(line.strip())
            if show:
                print(line, end="", flush=True)
        code = process.wait()
    except KeyboardInterrupt:
        process.terminate()  # a shell's background processes ignore SIGINT
        print(process.communicate()[0], end="")
        raise
    if code not in accepted:
        errors = [line for line in lines if re.match(r"(error|\w*(Error|Exception)): ", line)] or [*filter(None, lines)]
        reason = errors[-1].removeprefix("error: ") if errors else "it ended without a message"
        raise ChildProcessError(f"{' '.join(words[1:3])} failed: {reason}")


def _end_with_parent() -> None:
    """The kernel sends SIGTERM to this process when its parent is killed: a training then saves a checkpoint and ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
