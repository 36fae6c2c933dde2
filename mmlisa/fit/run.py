"""The steps of ``mmlisa fit``. A step whose result file exists is skipped, so that the same command continues a stopped run.

Training, test and export are commands that the user could type, each in a process of its own.
"""

import json
import shlex
import shutil
import signal
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

from mmlisa.checkpoints import write_file, writing_whole
from mmlisa.data.preparation import prepare_data, write_data
from mmlisa.errors import UserError

from .comparison import compare

# Results that the report shows of the checkpoint and of the exported file.
_METRICS = {"coco/bbox_mAP": "box AP", "coco/segm_mAP": "mask AP", "mIoU": "mIoU, %", "accuracy/top1": "top-1, %"}


@dataclass(frozen=True)
class Options:
    """The settings of a run; see ``mmlisa fit --help``."""

    data: str
    task: str = ""
    model: str = "auto"
    weights: str | None = None
    epochs: int | None = None
    size: int | None = None
    batch: int | None = None
    tile: int | str = "auto"
    ignore: tuple[int, ...] = ()
    background: str = "auto"


def fit(options: Options, folder: Path, *, dry_run: bool = False) -> None:
    """Run the steps whose results are missing: ``config.py``, ``model.pth``, ``model.onnx`` and ``report.html`` in ``folder``.

    A model that cannot be exported is a note in the report. ``dry_run`` stops after the config and ``samples.png``, twelve images
    with their annotations.

    Raises:
        UserError, OSError: the data cannot be used, or the folder holds a run with other options.
        ChildProcessError: a step failed.
    """
    folder, data = folder.absolute(), Path(options.data).absolute()
    if folder.is_relative_to(data):
        raise UserError(f"--work-dir {str(folder)!r} is inside of the data; name another folder")
    if not (folder / "config.py").exists():
        _configure(options, folder)
    elif changed := _changed(options, folder):
        raise UserError(f"{folder} holds a run with other options ({changed}); name another --work-dir")
    else:
        print(f"continues the run in {folder}")
    if dry_run:
        return _draw(folder)
    if not (folder / "model.pth").exists():
        _train(folder)
    comparison = folder / "comparison.json"
    if (folder / "plain.py").exists() and not comparison.exists():
        write_file(comparison, json.dumps(compare(folder, run), indent=1))
    file = folder / "model.onnx"
    if export := not (file.exists() and (folder / "export.json").exists()):
        _export(folder)
    if not (folder / "report.html").exists() or (export and file.exists()):
        _test(folder)
    print("Next:", *(f"  {line}" for line in _next_commands(folder).values()), sep="\n")


def _changed(options: Options, folder: Path) -> str:
    """Return the options that differ from those of the run in a folder; empty if none does."""
    before = json.loads((folder / "options.json").read_text())
    pairs = {name: (before.get(name), value) for name, value in json.loads(json.dumps(asdict(options))).items()}
    return ", ".join(f"{name} {was!r}, now {now!r}" for name, (was, now) in pairs.items() if was != now)


def _configure(options: Options, folder: Path) -> None:
    """Read the data, and write the annotations, the notes about them and, at last, the config."""
    import torch

    from .plan import choose_preset, largest_shape, make_plan, write_configs

    dataset = prepare_data(options.data, options.task, options.ignore, options.background)
    on_gpu = torch.cuda.is_available()
    preset, reason = choose_preset(dataset, options.model, options.weights, on_gpu)
    numbers = dict(side=options.size, batch=options.batch, epochs=options.epochs, tile=options.tile)
    plan = make_plan(dataset, preset, on_gpu, **numbers)
    plan.reasons["model"] = reason
    print(*dataset.summary(), sep="\n", flush=True)
    write_data(dataset, folder / "data", shape=largest_shape(plan, dataset))
    write_file(folder / "options.json", json.dumps(asdict(options), indent=1))
    for name, text in write_configs(plan, dataset, folder).items():
        print(text, flush=True)
        write_file(folder / name, text)


def _draw(folder: Path) -> None:
    """Draw twelve training images with their annotations, as the pipeline decodes them."""
    from mmengine.config import Config
    from mmengine.registry import init_default_scope

    from mmlisa.training.config import import_quietly
    from mmlisa.visualization.overlays import draw_samples

    cfg = Config.fromfile(folder / "config.py")
    init_default_scope(cfg.default_scope)
    import_quietly(cfg.default_scope)
    dataset = cfg.train_dataloader.dataset
    dataset.pipeline = [step for step in dataset.pipeline if step["type"].startswith(("Load", "Pack"))]
    draw_samples(dataset, 12, folder / "samples.png")


def _train(folder: Path) -> None:
    """Train, and copy the best checkpoint, or else the last one, to ``model.pth``."""
    train, config = folder / "train", folder / "config.py"
    hint = ". If the memory was full, give half of the batch in config.py as --batch, and another --work-dir"
    run("train", config, "--work-dir", train, *(["--resume"] if any(train.glob("*.pth")) else []), hint=hint)
    best = [*train.glob("best_*.pth"), Path((train / "last_checkpoint").read_text())]
    with writing_whole(folder / "model.pth") as file, best[0].open("rb") as source:
        shutil.copyfileobj(source, file)


def _export(folder: Path) -> None:
    """Write ``model.onnx``, of free size if the model allows it, else of the shape of the data, and notes on what was refused."""
    words, log = ["export", folder / "config.py", folder / "model.pth", folder / "model.onnx"], folder / "export.txt"
    shape, refused = _facts(folder)["shape"], {}
    size = "x".join(map(str, shape))
    attempts = {"model.onnx of free size": [], f"model.onnx of size {size}": ["--size", *shape]}
    for name, options in attempts.items() if shape else {"model.onnx": []}.items():
        try:
            run(*words, *options, log=log)
            print(log.read_text(errors="replace"), end="")
            break
        except ChildProcessError as error:
            reason = [str(error), *log.read_text(errors="replace").split("\n")[:-1]][-1]
            refused.setdefault(reason.removeprefix("error: "), []).append(name)
    notes = [f"{' and '.join(names)} cannot be written: {reason}" for reason, names in refused.items()]
    if notes and (folder / "model.onnx").exists():
        notes.append(f"model.onnx refuses images above {size}, and pads smaller ones, which may change its results.")
    write_file(folder / "export.json", json.dumps({"notes": notes, "table": []}, indent=1))
    print(*(f"note: {note}" for note in notes), sep="\n", flush=True)


def _test(folder: Path) -> None:
    """Test the exported file and the checkpoint, and write the report."""
    from .report import write_report

    rows, exported = {}, json.loads((folder / "export.json").read_text())
    dump = ["--out", folder / "test" / "predictions.pkl"] if _facts(folder)["task"] == "classification" else []
    for name in ("model.onnx", "model.pth"):  # the predictions of the last one stay
        work = folder / "test" / name
        try:
            if (folder / name).exists():
                out = dump if name == "model.pth" else []
                run("test", folder / "config.py", folder / name, "--work-dir", work, *out)
                rows[name] = json.loads(max(work.rglob("[0-9]*.json")).read_text())
        except ChildProcessError as error:
            if name == "model.pth":
                raise
            exported["notes"].append(f"{name} was not tested: {error}")
    titles = {key: title for key, title in _METRICS.items() if any(key in row for row in rows.values())}
    table = [[name, *(f"{row[key]:#.4g}" if key in row else "-" for key in titles)] for name, row in rows.items()]
    exported["table"] = [["", *titles.values()], *table]
    write_file(folder / "export.json", json.dumps(exported, indent=1))
    print(*("  ".join(row) for row in exported["table"]), sep="\n", flush=True)
    score = write_report(folder, _next_commands(folder))
    print(f"{score}; {folder / 'report.html'}", flush=True)


def _next_commands(folder: Path) -> dict[str, str]:
    """Return commands that the user may run next, by their purpose."""
    config, model, file = folder / "config.py", folder / "model.pth", folder / "model.onnx"
    exported = {"the same with the exported file": command("infer", file, "IMAGE_OR_FOLDER")} if file.exists() else {}
    return {
        "draw predictions": command("infer", config, model, "IMAGE_OR_FOLDER"),
        **exported,
        "test again": command("test", config, model),
        "look at the data": command("check-data", config, "--draw", 16),
    }


def _facts(folder: Path) -> dict:
    return json.loads((folder / "data" / "data.json").read_text())


def command(name: str, *words: object) -> str:
    """Return a command as the user can type it."""
    return shlex.join(["mmlisa", name, *map(str, words)])


def run(name: str, *words: object, log: Path | None = None, hint: str = "") -> None:
    """Run a command of mmlisa in a process of its own, which gets the signals that this one gets.

    Args:
        name, words: the command and its arguments.
        log: file for its output; the console if None.
        hint: end of the message if the run failed for another reason than its arguments.

    Raises:
        ChildProcessError: it failed; it has printed why.
        SystemExit: a signal stopped it; a training has saved a checkpoint.
    """
    print(f"\n$ {command(name, *words)}", flush=True)
    numbers: list[int] = []
    processes: list[subprocess.Popen] = []

    def forward(number: int, _: object) -> None:
        numbers.append(number)
        for process in processes:
            process.send_signal(number)

    previous = {number: signal.signal(number, forward) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        if log:
            log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") if log else nullcontext() as output:
            # In a session of its own, so that a terminal's Ctrl-C arrives once.
            words = [sys.executable, "-m", "mmlisa", name, *map(str, words)]
            processes.append(subprocess.Popen(words, stdout=output, stderr=output, start_new_session=True))
            if numbers:  # before the process was there
                processes[0].send_signal(numbers[0])
            code = processes[0].wait()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    if numbers:
        print("stopped; the same mmlisa fit continues", file=sys.stderr)
        sys.exit(128 + numbers[0])
    if code:
        where = f"; see {log}" if log else ""
        raise ChildProcessError(f"mmlisa {name} failed with exit status {code}{where}{hint if code != 2 else ''}")
