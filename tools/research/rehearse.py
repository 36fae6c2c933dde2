"""Dress rehearsal: train, test and resume every shipped config on miniature data sets, as a user runs them.

For each config: its pretraining config for two iterations -> checkpoint -> two iterations at the real scale, crop and
augmentation -> validation -> ``mmlisa test`` of the written checkpoint -> ``mmlisa train --resume`` for two more. Only batch,
workers, length and log interval differ from the recipe; weights that would be downloaded are left out. One line of
``rehearsal.jsonl`` per config; the same command goes on where the last one stopped.

    python tools/research/rehearse.py                    the smallest config of each family, the lightest first
    python tools/research/rehearse.py CONFIG …           these configs, again if they are in the results
"""

import argparse
import json
import math
import os
import re
import resource
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from datetime import date
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import yaml
from mmengine.config import Config, ConfigDict

from mmlisa import cli, config_path

CONFIGS = Path(__file__).parents[2] / "configs"
# Tokens of a name that stand for a size or stages, and for the length of a detector's training: configs that differ only in
# them are a family.
_SIZE = re.compile(
    r"(?<=_)(?:[tsmbl]\d*|[ls]{4}|tiny|small|base|wider|b\d|(?:window|local|d|p)\d+)(?=_)|(?<=[a-z_])\d+(?=_|$)"
)
_LENGTH = re.compile(r"(?:_host)?_\d+[ex](?=_coco)")
_MATCH = re.compile(r"\.pth: (.+ values\b.*)$", re.MULTILINE)
# The whole checkpoint; rows of before 2026-11-28 count entries.
_WHOLE = re.compile(r"all .+ values match|(\d+) of \1")
# Images a step and images in the miniature training set: two iterations.
BATCH = {"mmdet": 1, "mmseg": 2, "mmpretrain": 4}
MEMORY = 12 << 30  # bytes that a step may allocate
SECONDS = 1200  # of a step


def make_data(root: Path) -> None:
    """Write COCO, ADE20K, ImageNet, Kinetics and Something-Something in miniature under ``root``, unless it exists."""
    import cv2
    import numpy as np
    from mmdet.datasets import CocoDataset

    from mmlisa.checkpoints import atomic_path
    from mmlisa.datasets.demo import CLASSES, make_imagenet_layout, make_scenes, write_ade20k, write_coco

    if root.exists():
        return
    names = CocoDataset.METAINFO["classes"]
    ids = np.setdiff1d(np.arange(1, 91), [12, 26, 29, 30, 45, 66, 68, 69, 71, 83])  # COCO's ids of its 80 classes
    categories = [dict(id=int(number), name=name) for number, name in zip(ids, names, strict=True)]
    with atomic_path(root) as folder:
        for split, number in (("train", 2 * BATCH["mmseg"]), ("val", 1)):
            scenes = list(make_scenes(split, number + 3, side=480))[3:]
            annotations = folder / "coco" / "annotations" / f"instances_{split}2017.json"
            pictures = scenes[: 2 * BATCH["mmdet"]]
            write_coco(
                annotations, folder / "coco" / f"{split}2017", pictures, categories, ids[: len(CLASSES)].tolist()
            )
            write_ade20k(folder / "ade/ADEChallengeData2016", split, scenes)
        for name in ("imagenet", "imagenet21k"):
            make_imagenet_layout(folder / name, {"train": 1, "val": 1}, side=256)
        for name in ("kinetics400", "something_v2"):
            for split, number in (("train", 4), ("val", 2)):
                lines = []
                for index in range(number):
                    rng = np.random.default_rng([split == "val", index])
                    path = folder / name / split / f"{index}.mp4"
                    path.parent.mkdir(parents=True, exist_ok=True)
                    video = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"mp4v"), 25, (340, 256))
                    for _ in range(70):
                        video.write(rng.integers(0, 255, (256, 340, 3), dtype=np.uint8))
                    video.release()
                    lines.append(f"{split}/{index}.mp4 70 {index}\n")
                (folder / name / f"{split}.txt").write_text("".join(lines))


def find_families() -> dict[str, list[str]]:
    """Return the configs that each chosen one stands for: the smallest of each family, the lightest first."""
    models = yaml.safe_load((CONFIGS / "metafile.yml").read_text(encoding="utf-8"))["Models"]
    families: dict[str, list[str]] = {}
    # Mask2Former is listed with the FLOPs of its backbone, and is the slowest.
    for model in sorted(models, key=lambda model: ("mask2former" in model["Name"], model["Metadata"]["FLOPs"])):
        families.setdefault(_LENGTH.sub("", _SIZE.sub("#", model["Name"])), []).append(model["Name"])
    return {smallest: others for smallest, *others in families.values()}


def _without_downloads(model: dict[str, Any]) -> list[str]:
    """Return the options that keep the model of a config from downloading weights."""
    options = []
    for place in ("model.backbone", "model.student.backbone"):
        part: Any = ConfigDict(model=model)
        for key in place.split("."):
            part = (part or {}).get(key)
        if part and part.get("init_cfg"):
            options.append(f"{place}.init_cfg=None")
    if model.get("teacher", {}).get("pretrained"):
        options.append("model.teacher.pretrained=False")
    return options


def shorten(cfg: Config) -> tuple[list[str], list[str]]:
    """Return ``--cfg-options`` that make a run of a config short, and the arguments that limit its batch."""
    options = _without_downloads(cfg.model)
    if cfg.train_dataloader.dataset.get("times"):
        options.append("train_dataloader.dataset.times=1")
    loaders = [f"{split}_dataloader" for split in ("train", "val", "test")]
    options += [f"{loader}.num_workers=0" for loader in loaders if cfg.get(loader)]
    options += ["default_hooks.logger.interval=1", "default_hooks.logger.ignore_last=False"]
    if cfg.default_scope == "mmpretrain" and cfg.get("val_dataloader"):
        options += ["val_dataloader.batch_size=4", "test_dataloader.batch_size=4"]
    return options, ["--batch", str(2 if "video" in cfg.filename else BATCH[cfg.default_scope])]


def find_contradiction(row: dict[str, Any]) -> str | None:
    """Return how the numbers of a row contradict each other, if they do.

    The test of a checkpoint gives what the validation gave, and a resumed training only has the iterations that are left.
    """
    train, test, resumed = (row.get(step, {}) for step in ("train", "test", "resume"))
    begun, continued = train.get("losses", []), resumed.get("losses", [])
    if not all(math.isfinite(loss) for loss in [*begun, *continued]):
        return "train: a loss is not finite"
    if len(continued) != len(begun) or not begun:
        return f"train --resume: {len(continued)} iterations, where {len(begun)} were left"
    if not test:
        return None
    if test.get("metric") != train.get("metric"):
        return f"test: {test.get('metric')}, where the validation has {train.get('metric')}"
    matched = test.get("matched", "nothing")
    if not _WHOLE.fullmatch(matched):
        return f"test: of the checkpoint, {matched} matched"
    return None


class Rehearsal:
    """Runs configs in ``root`` with ``root/data``; every command is a process of its own, forked after the imports."""

    def __init__(self, root: Path) -> None:
        self.root, self.results = root, root / "rehearsal.jsonl"

    def done(self) -> dict[str, dict[str, Any]]:
        lines = self.results.read_text().splitlines() if self.results.exists() else []
        return {row["config"]: row for row in map(json.loads, lines)}

    def rehearse(self, name: str) -> dict[str, Any]:
        """Run one config, after the one that its weights come from, and write the result down."""
        cfg = Config.fromfile(config_path(f"{name}.py"))
        row: dict[str, Any] = dict(config=name, commit=_describe_commit(), date=str(date.today()), options=[])
        begin = time.monotonic()
        try:
            self._rehearse(name, cfg, row)
        except Exception as error:  # the next config must get its turn
            row["error"] = str(error) or repr(error)
        row["seconds"] = round(time.monotonic() - begin)
        with self.results.open("a") as file:
            file.write(json.dumps(row) + "\n")
        if not any(f'"{name}.py"' in path.read_text() for path in CONFIGS.rglob("*.py")):  # nobody starts from it
            shutil.rmtree(self.root / "work_dirs" / name, ignore_errors=True)
        return row

    def _rehearse(self, name: str, cfg: Config, row: dict[str, Any]) -> None:
        row["options"] = _without_downloads(cfg.model)
        options, limits = shorten(cfg)
        start = self._start(cfg, options)
        train = ["train", f"{name}.py", *limits, *start, "--cfg-options", *options]
        unit, number = ("--epochs", 1) if "max_epochs" in cfg.train_cfg else ("--iters", 2)
        row["train"] = self._run([*train, unit, str(number)], name)
        checkpoint = self._checkpoint(name)
        if cfg.get("test_dataloader"):
            row["test"] = self._run(["test", f"{name}.py", checkpoint, "--cfg-options", *options], name)
        row["resume"] = self._run([*train, unit, str(2 * number), "--resume"], name)
        if contradiction := find_contradiction(row):
            raise RuntimeError(contradiction)

    def _start(self, cfg: Config, options: list[str]) -> list[str]:
        """Train the config that this one starts from, if it has not been trained yet, and return the arguments that name it."""
        if not (source := cfg.get("pretrained_by")):
            return []
        source = source.removesuffix(".py")
        row = self.done().get(source)
        if row is None or not (self.root / "work_dirs" / source).exists():
            row = self.rehearse(source)
        checkpoint = self._checkpoint(source)
        if cfg.get("load_from"):  # a video classifier
            self._run(["convert", checkpoint, cfg.load_from, "--inflate", cfg.filename], source)
            return []
        if "head" in cfg.model:
            options.append(f"load_from={checkpoint}")
            return []
        return ["--pretrained", checkpoint]

    def _checkpoint(self, name: str) -> str:
        return (self.root / "work_dirs" / name / "last_checkpoint").read_text()

    def _run(self, arguments: list[str], name: str) -> dict[str, Any]:
        """Run ``mmlisa ARGUMENTS`` in a process, and return losses, metrics, matches, seconds and peak memory.

        Raises:
            RuntimeError: the command failed; the message is its last line.
        """
        log = self.root / "logs" / f"{name}_{arguments[0]}{'_resume' * ('--resume' in arguments)}.log"
        log.parent.mkdir(exist_ok=True)
        receive, send = get_context("fork").Pipe(duplex=False)
        process = get_context("fork").Process(target=_command, args=(arguments, self.root, log, send))
        begin = time.monotonic()
        process.start()
        send.close()
        try:
            outcome = receive.recv() if receive.poll(SECONDS) else dict(error=f"no end after {SECONDS} s")
        except EOFError:
            outcome = dict(error="killed")
        process.kill()
        process.join()
        outcome["seconds"] = round(time.monotonic() - begin)
        text = log.read_text(errors="replace")
        if found := _MATCH.search(text):
            outcome["matched"] = found[1]
        if "error" in outcome:
            raise RuntimeError(f"{arguments[0]}{' --resume' * ('--resume' in arguments)}: {outcome['error']}")
        entries = [
            json.loads(line) for line in _scalars(self.root / "work_dirs" / name, begin_after=outcome.pop("time"))
        ]
        losses = [entry["loss"] for entry in entries if "loss" in entry]
        if losses:
            outcome["losses"] = losses
        for entry in entries:
            scores = {
                key: value for key, value in entry.items() if re.search(r"bbox_mAP$|segm_mAP$|mIoU|accuracy/top1", key)
            }
            outcome.update(scores and {"metric": scores})
        return outcome


def _describe_commit() -> str:
    # As research.benchmark does it, which a program of this folder cannot import.
    command = ["git", "-C", str(CONFIGS), "describe", "--always", "--dirty", "--exclude=*"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip() or "unknown"


def _scalars(folder: Path, begin_after: float) -> list[str]:
    files = [path for path in folder.rglob("vis_data/2*.json") if path.stat().st_mtime >= begin_after]
    files += [path for path in folder.rglob("2*/2*.json") if path.stat().st_mtime >= begin_after]
    return [line for path in sorted(files) for line in path.read_text().splitlines()]


def _command(arguments: list[str], root: Path, log: Path, send: Any) -> None:
    begin = time.time()
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    os.chdir(root)
    with log.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    outcome: dict[str, Any] = dict(time=begin)
    try:
        cli.main(arguments)
    except SystemExit as error:
        if error.code:
            sys.stdout.flush()
            sys.stderr.flush()
            outcome["error"] = log.read_text(errors="replace").strip().splitlines()[-1]
    except BaseException as error:
        traceback.print_exc()
        outcome["error"] = f"{type(error).__name__}: {error}".splitlines()[0]
    sys.stdout.flush()
    sys.stderr.flush()
    outcome["gib"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 1)
    send.send(outcome)
    send.close()
    os._exit(0)


def to_markdown() -> str:
    """Return the table of docs/rehearsal.jsonl.

    Raises:
        ValueError: a row states something else than a commit.
    """
    from .measured import check_commit

    rows, families = Rehearsal(CONFIGS.parent / "docs").done(), find_families()
    faults = {name: row.get("error") or find_contradiction(row) for name, row in rows.items()}
    passed = sum(fault is None for fault in faults.values())
    unknown = sum("commit" not in row for row in rows.values())
    missing = [name for name in families if name not in rows]
    lines = [
        "",
        f"{len(rows)} configs ran, {passed} of them without a failure. Of {len(families)} families, {len(missing)} did not run: "
        f"{', '.join(f'`{name}`' for name in missing) or 'none'}. {unknown} rows are older than the record of commits.",
        "",
        "| config | start weights | losses | metric | test | GiB | commit | result |",
        "|---" * 8 + "|",
    ]
    for name, row in sorted(rows.items()):
        train, test, resumed = (row.get(step, {}) for step in ("train", "test", "resume"))
        losses = " ".join(f"{loss:.4g}" for loss in [*train.get("losses", []), *resumed.get("losses", [])])
        shown = [" ".join(f"{value:.3g}" for value in step.get("metric", {}).values()) for step in (train, test)]
        commit = "–"
        if "commit" in row:
            check_commit(row["commit"], f"rehearsal.jsonl, {name}")
            commit = f"{row['commit']}, {row['date']}"
        result = faults[name] or ("trained, tested, resumed" if test else "trained, resumed")
        options = f"; {', '.join(row['options'])}" * bool(row["options"])
        cells = [f"`{name}`", train.get("matched", "–"), losses, *shown, str(train.get("gib", "")), commit]
        lines.append(f"| {' | '.join([*cells, result.replace('|', '/') + options])} |")
    lines += ["", "| stands for its family | configs that it stands for |", "|---|---|"]
    lines += [
        f"| `{name}` | {', '.join(f'`{other}`' for other in left)} |"
        for name, others in sorted(families.items())
        if name in rows and (left := [other for other in others if other not in rows])
    ]
    return "\n".join(lines) + "\n"


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", nargs="*", help="names without .py (default: the smallest config of each family)")
    parser.add_argument("--root", type=Path, default=Path("work_dirs/rehearsal"), help="default: %(default)s")
    parser.add_argument("--list", action="store_true", help="print the names in their order")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no config after this time")
    return parser.parse_args(argv)


def main(args: argparse.Namespace) -> None:
    rehearsal = Rehearsal(args.root.resolve())
    names = args.configs or [*find_families()]
    if args.list:
        print("\n".join(names))
    else:
        from mmlisa.training.config import import_quietly

        import_quietly()
        args.root.mkdir(parents=True, exist_ok=True)
        make_data(rehearsal.root / "data")
        begin = time.monotonic()
        for name in names:
            if time.monotonic() - begin < args.seconds and (args.configs or name not in rehearsal.done()):
                row = rehearsal.rehearse(name)
                print(f"{name}: {row.get('error', 'passed')} ({row['seconds']} s)", flush=True)


if __name__ == "__main__":
    main(parse_args())
