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
from dataclasses import asdict
from math import isnan
from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.registry import init_default_scope

from mmlisa.checkpoints import write_file, writing_whole
from mmlisa.data.preparation import hash_files, prepare_data, write_data
from mmlisa.errors import UserError

from .plan import Options, make_plan, write_configs

# Results that the report shows of the checkpoint and of the exported file, and of tiles and one pass.
_METRICS = {"coco/bbox_mAP": "box AP", "coco/segm_mAP": "mask AP", "mIoU": "mIoU, %", "accuracy/top1": "top-1, %"}
_BOX_METRICS = {"mAP": "AP", "mAP_50": "AP50", "mAP_s": "small", "mAP_m": "medium", "mAP_l": "large"}


# What a run writes, in this order; it is removed before another one begins.
_RESULTS = (
    *("data", "data_hashes.json", "options.json", "config.py", "plain.py", "samples.png", "train", "model.pth"),
    *("comparison", "comparison.json", "model.onnx", "export.txt", "export.json", "test", "report.html"),
)
_SHOWN = 3  # changed files in a message


def fit(options: Options, folder: Path, *, dry_run: bool = False, restart: bool = False) -> None:
    """Run the steps whose results are missing: ``config.py``, ``model.pth``, ``model.onnx`` and ``report.html`` in ``folder``.

    A model that cannot be exported is a note in the report. ``samples.png`` shows twelve images with their annotations.
    ``dry_run`` stops after it; ``restart`` removes the results of an earlier run first.

    Raises:
        UserError, OSError: the data cannot be used, or the folder holds a run with other options or of other data.
        ChildProcessError: a step failed.
    """
    folder, data = folder.absolute(), Path(options.data).absolute()
    if folder.is_relative_to(data):
        raise UserError(f"--work-dir {str(folder)!r} is inside of the data; name another folder")
    if restart and (folder / "options.json").exists():
        _remove_results(folder)
    print(f"{folder / 'samples.png'} shows twelve images with their annotations, as they are read", flush=True)
    if not (folder / "config.py").exists():
        _configure(options, folder)
    else:
        _check_run(options, folder)
        print(f"continues the run in {folder}")
    if dry_run or not (folder / "samples.png").exists():
        _draw(folder)
    if dry_run:
        return
    if not (folder / "model.pth").exists():
        _train(folder)
    if (folder / "plain.py").exists() and not (folder / "comparison.json").exists():
        _compare(folder)
    file = folder / "model.onnx"
    if export := not (file.exists() and (folder / "export.json").exists()):
        _export(folder)
    if not (folder / "report.html").exists() or (export and file.exists()):
        _test(folder)
    print("Next:", *(f"  {line}" for line in _next_commands(folder).values()), sep="\n")


def _remove_results(folder: Path) -> None:
    for path in (folder / name for name in _RESULTS):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _check_run(options: Options, folder: Path) -> None:
    """Refuse to continue a run with other options, or of data that changed since."""
    remedy = "name another --work-dir, or begin again with --restart"
    now, default = (json.loads(json.dumps(asdict(values))) for values in (options, Options("")))
    before = default | json.loads((folder / "options.json").read_text())  # an older version has fewer
    if changed := [f"{key} {before[key]!r}, now {now[key]!r}" for key in now if before[key] != now[key]]:
        raise UserError(f"{folder} holds a run with other options ({', '.join(changed)}); {remedy}")
    if not (folder / "data_hashes.json").exists():
        print("warning: this run does not state its data, so that a change of them is not noticed")
        return
    before, now = json.loads((folder / "data_hashes.json").read_text()), hash_files(options.data)
    changed = [f"{path} is new" for path in sorted(now.keys() - before.keys())]
    changed += [f"{path} is missing" for path in sorted(before.keys() - now.keys())]
    changed += [f"{path} changed" for path in sorted(now.keys() & before.keys()) if now[path] != before[path]]
    if changed:
        listed = "; ".join(changed[:_SHOWN])
        raise UserError(
            f"{len(changed)} files of {options.data} changed since the run in {folder} ({listed}); {remedy}"
        )


def _configure(options: Options, folder: Path) -> None:
    """Read the data, and write the annotations, the notes about them and, at last, the config."""
    hashes = hash_files(options.data)  # a change during the run is noticed by the next one
    dataset = prepare_data(options.data, options.task, options.ignore, options.background)
    plan = make_plan(dataset, options, torch.cuda.is_available())
    if plan.preset.weights:
        from mmlisa.conversion import read  # imports timm, which a run that goes on does not need

        read(plan.preset.weights)  # a missing file, or no network, shows before anything is written
    print(*dataset.summary(), sep="\n", flush=True)
    write_data(dataset, folder / "data")
    write_file(folder / "data_hashes.json", json.dumps(hashes, indent=1))
    write_file(folder / "options.json", json.dumps(asdict(options), indent=1))
    for name, text in write_configs(plan, dataset, folder).items():
        print(text, flush=True)
        write_file(folder / name, text)


def _draw(folder: Path) -> None:
    """Draw twelve training images with their annotations, as the pipeline decodes them."""
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


def _measure(config: Path, model: Path, work: Path, *words: object, log: Path | None = None) -> dict[str, float]:
    """Test a checkpoint or an exported file, and return the metrics and the time per image."""
    run("test", config, model, "--work-dir", work, *words, log=log)
    return json.loads(max(work.rglob("[0-9]*.json")).read_text())


def _compare(folder: Path) -> None:
    """Test the weights on tiles of the validation images, and in one pass at 640 and 1333 pixels: rows of ``comparison.json``.

    The limits on proposals hold for a tile, so one pass gets those of the tiles of its image.
    """
    val, plain = folder / "data" / "val.json", Config.fromfile(folder / "plain.py")
    cfg, tests = plain.model.test_cfg, {f"tiles of {plain.side} pixels": []}
    limits = {f"rpn.{key}": value for key, value in cfg.rpn.items()} if "rpn" in cfg else cfg
    limits = {key: value for key, value in limits.items() if key.endswith(("nms_pre", "max_per_img"))}
    longest = max(side for image in json.loads(val.read_text())["images"] for side in (image["width"], image["height"]))
    for size in (size for size in (640, 1333) if size <= longest):
        more = [f"model.test_cfg.{key}={value * -(-(size**2) // plain.side**2)}" for key, value in limits.items()]
        tests[f"one pass at {size} pixels"] = [f"test_dataloader.dataset.pipeline.1.scale=({size},{size})", *more]
    rows = [["test", *_BOX_METRICS.values(), "s per image"]]
    for name, changes in tests.items():
        work, config = folder / "comparison" / name.replace(" ", "_"), "plain.py" if changes else "config.py"
        changes += [f"test_{part}.ann_file={val}" for part in ("dataloader.dataset", "evaluator")]
        words = ["--cfg-options", *changes, f"test_evaluator.outfile_prefix={work / 'predictions'}"]
        try:
            metrics = _measure(folder / config, folder / "model.pth", work, *words, log=work / "log.txt")
        except ChildProcessError:
            rows.append([name, *["-"] * len(_BOX_METRICS), "failed, perhaps for memory"])
            continue
        values = [metrics[f"coco/bbox_{key}"] for key in _BOX_METRICS]  # NaN where no object has this size
        rows.append([name, *("-" if isnan(value) else f"{value:.3f}" for value in values), f"{metrics['time']:.2f}"])
    write_file(folder / "comparison.json", json.dumps(rows, indent=1))


def _export(folder: Path) -> None:
    """Write ``model.onnx`` for images of any size (of a classifier, of its own size), or note why that is refused."""
    words, log, notes = [folder / "config.py", folder / "model.pth", folder / "model.onnx"], folder / "export.txt", []
    try:
        run("export", *words, log=log)
        print(log.read_text(errors="replace"), end="")
    except ChildProcessError as error:
        reason = [str(error), *log.read_text(errors="replace").split("\n")[:-1]][-1].removeprefix("error: ")
        fixed = command("export", *words, "--size", "HEIGHT", "WIDTH")
        notes = [f"model.onnx cannot be written: {reason}. For one size of images, try {fixed}"]
        print(f"note: {notes[0]}", flush=True)
    write_file(folder / "export.json", json.dumps({"notes": notes, "table": []}, indent=1))


def _test(folder: Path) -> None:
    """Test the exported file and the checkpoint, and write the report."""
    from .report import write_report

    rows, exported = {}, json.loads((folder / "export.json").read_text())
    task = json.loads((folder / "data" / "data.json").read_text())["task"]
    for name in ("model.onnx", "model.pth"):  # the predictions of the last one stay
        out = ["--out", folder / "test" / "predictions.pkl"] if (name, task) == ("model.pth", "classification") else []
        try:
            if (folder / name).exists():
                rows[name] = _measure(folder / "config.py", folder / name, folder / "test" / name, *out)
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


def command(name: str, *words: object) -> str:
    """Return a command as the user can type it."""
    return shlex.join(["mmlisa", name, *map(str, words)])


def run(name: str, *words: object, log: Path | None = None, hint: str = "") -> None:
    """Run a command of mmlisa in a process of its own, which gets the signals that this one gets, and writes into ``log``.

    A failure is a ChildProcessError, with ``hint`` unless the arguments were wrong. If a signal stopped the command, it has
    saved its checkpoint, and this is a SystemExit.
    """
    print(f"\n$ {command(name, *words)}", flush=True)
    numbers, processes = list[int](), list[subprocess.Popen]()

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
