"""The steps of ``mmlisa fit``. A step whose result file exists is skipped, so that the same command continues a stopped run.

Training, test and export are commands that the user could type, each in a process of its own.
"""

import json
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from mmlisa.checkpoints.writing import writing_whole
from mmlisa.data.folder import SPLITS, Dataset
from mmlisa.data.splitting import SEED, prepare_data


@dataclass(frozen=True)
class Options:
    """The settings of a run; see ``mmlisa fit --help``. ``memory`` is in GiB."""

    data: str
    task: str = ""
    model: str = "auto"
    weights: str | None = None
    epochs: int | None = None
    size: int | None = None
    batch: int | None = None
    tile: int | str = "auto"
    memory: float | None = None


def fit(options: Options, folder: Path, *, dry_run: bool = False) -> None:
    """Run the steps whose results are missing: ``config.py``, ``model.pth``, ``report.html`` and ``model.onnx`` in ``folder``.

    ``dry_run`` stops after the config.

    Raises:
        ValueError, OSError: the data cannot be used.
        ChildProcessError: a step failed.
    """
    folder, data = folder.absolute(), Path(options.data).absolute()
    if folder.is_relative_to(data):
        raise ValueError(
            f"--work-dir {str(folder)!r} is inside of the data, which are never changed; name another folder"
        )
    config, model = folder / "config.py", folder / "model.pth"
    if config.exists():
        if (known := _settings(folder)["data_root"]) != str(data):
            raise ValueError(f"{folder} holds a run on {known}; name another folder with --work-dir")
        print(f"{config} exists, and its settings count; delete {folder} for a run with other options or data")
    else:
        _configure(options, folder)
    if dry_run:
        return
    if not model.exists():
        _train(folder)
    plain = folder / "plain.py"  # exists if the training takes tiles
    if plain.exists() and not (folder / "comparison.json").exists():
        from .comparison import compare  # it limits the memory of processes, which Windows cannot do

        _write(folder / "comparison.json", json.dumps(compare(folder, options.memory), indent=1))
    if not (folder / "report.html").exists():
        _test(folder)
    if not (folder / "model.onnx").exists():
        side = _settings(folder)["side"]
        run("export", plain if plain.exists() else config, model, folder / "model.onnx", "--size", side, side)
    print("Next:", *(f"  {line}" for line in _next_commands(folder).values()), sep="\n")


# --- steps -------------------------------------------------------------------------------------------------------------------


def _configure(options: Options, folder: Path) -> None:
    """Read the data, and write the annotations, the notes about them and, at last, the config."""
    import torch

    from .plan import choose_preset, make_plan, write_config, write_tiled_config

    dataset = prepare_data(options.data, options.task)
    counts = ", ".join(f"{name} {len(dataset.split(name))}" for name in SPLITS)
    print(f"{dataset.format}, {dataset.task}; images: {counts}; classes: {', '.join(dataset.classes)}")
    on_gpu = torch.cuda.is_available()
    preset, reason = choose_preset(dataset, options.model, options.weights, on_gpu)
    numbers = dict(side=options.size, batch=options.batch, epochs=options.epochs, tile=options.tile)
    plan = make_plan(dataset, preset, on_gpu, **numbers)
    plan.reasons["model"] = reason
    print(*dataset.notes, sep="\n", flush=True)
    _write_data(folder / "data", dataset)
    text = write_config(plan, dataset, folder)
    if plan.tiles and plan.task == "detection":
        _write(folder / "plain.py", text)
        print(text)
        text = write_tiled_config(plan)
    _write(folder / "config.py", text)
    print(text, flush=True)


def _write_data(folder: Path, dataset: Dataset) -> None:
    """Write the annotations in the form that the config names. The images stay where they are."""
    for name in SPLITS:
        samples = dataset.split(name)
        if dataset.task == "detection":
            _write(folder / f"{name}.json", json.dumps(dataset.to_coco(name)))
        elif dataset.task == "segmentation":
            _write(folder / f"{name}.txt", "\n".join(f"{sample.path}\t{sample.seg_map}" for sample in samples))
        else:
            _write(folder / f"{name}.txt", "\n".join(f"{sample.path} {sample.label}" for sample in samples))
    splits = {name: [sample.path for sample in dataset.split(name)] for name in SPLITS}
    facts = {"format": dataset.format, "task": dataset.task, "notes": dataset.notes, "seed": SEED, **splits}
    _write(folder / "data.json", json.dumps(facts, indent=1))


def _train(folder: Path) -> None:
    """Train, and copy the best checkpoint, or else the last one, to ``model.pth``."""
    train, config = folder / "train", folder / "config.py"
    try:
        run("train", config, "--work-dir", train, *(["--resume"] if any(train.glob("*.pth")) else []))
    except ChildProcessError as error:
        half = max(1, _settings(folder)["batch"] // 2)
        raise ChildProcessError(f"{error}. If the memory is full, delete {folder} and add --batch {half}") from error
    best = [*train.glob("best_*.pth"), Path((train / "last_checkpoint").read_text())]
    with writing_whole(folder / "model.pth") as file, best[0].open("rb") as source:
        shutil.copyfileobj(source, file)


def _test(folder: Path) -> None:
    """Test, and write the report."""
    from .report import write_report

    test = folder / "test"
    test.mkdir(exist_ok=True)
    task = json.loads((folder / "data" / "data.json").read_text())["task"]
    dump = ["--out", test / "predictions.pkl"] if task == "classification" else []
    run("test", folder / "config.py", folder / "model.pth", "--work-dir", test, *dump)
    score = write_report(folder, _next_commands(folder))
    print(f"{score}; {folder / 'report.html'}", flush=True)


def _next_commands(folder: Path) -> dict[str, str]:
    """Return commands that the user may run next, by their purpose."""
    config, model = folder / "config.py", folder / "model.pth"
    return {
        "draw predictions": command("infer", config, model, "IMAGE_OR_FOLDER"),
        "test again": command("test", config, model),
        "look at the data": command("check-data", config, "--draw", 16),
    }


def _settings(folder: Path) -> dict:
    from mmengine.config import Config

    return Config.fromfile(folder / "config.py").to_dict()


# --- processes ---------------------------------------------------------------------------------------------------------------


def command(name: str, *words: object) -> str:
    """Return a command as the user can type it."""
    return shlex.join(["mmlisa", name, *map(str, words)])


def run(name: str, *words: object) -> None:
    """Run a command of mmlisa in a process of its own.

    Raises:
        ChildProcessError: it failed; it has printed why.
    """
    print(f"\n$ {command(name, *words)}", flush=True)
    process = subprocess.Popen([sys.executable, "-m", "mmlisa", name, *map(str, words)])
    try:
        code = process.wait()
    except KeyboardInterrupt:
        process.wait()  # a terminal sends Ctrl-C to the process, too, which may save a checkpoint
        raise
    if code:
        raise ChildProcessError(f"mmlisa {name} failed with exit status {code}")


def _write(path: Path, text: str) -> None:
    with writing_whole(path) as file:
        file.write(text.encode())
