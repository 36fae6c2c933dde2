"""The steps of `mmlisa fit`: each once, its errors, and whole runs on the demo data."""

import json
import math
import re
import signal
import sys
from pathlib import Path

import pytest
from mmengine.dataset import pseudo_collate
from mmengine.registry import DATASETS, init_default_scope

from helpers import folders
from mmlisa.datasets.demo import make_demo
from mmlisa.fit import run as module
from mmlisa.fit.run import Options, fit
from mmlisa.training.config import build_model, load_config


@pytest.fixture
def commands(monkeypatch, tmp_path):
    """The commands that ran; they write their results only."""
    ran = []

    def run(name, *words, log=None, **_):
        ran.append([name, *map(str, words)])
        if name == "train":
            (tmp_path / "run" / "train").mkdir(exist_ok=True)
            for checkpoint in ("best_accuracy_top1_iter_3.pth", "iter_4.pth"):
                (tmp_path / "run" / "train" / checkpoint).write_text(checkpoint)
            (tmp_path / "run" / "train" / "last_checkpoint").write_text(str(tmp_path / "run" / "train" / "iter_4.pth"))
        elif name == "export":
            Path(words[2]).touch()
            log.touch()
        elif name == "test":
            subfolder = "model" if Path(words[1]).suffix == ".onnx" else ""
            metrics = Path(words[words.index("--work-dir") + 1], subfolder, "20260101_000000", "20260101_000000.json")
            metrics.parent.mkdir(parents=True, exist_ok=True)
            metrics.write_text(json.dumps({"accuracy/top1": 50.0, "time": 1}))

    monkeypatch.setattr(module, "run", run)

    def draw(folder):
        ran.append(["draw"])
        (folder / "samples.png").touch()

    monkeypatch.setattr(module, "_draw", draw)
    monkeypatch.setattr("mmlisa.fit.report.write_report", lambda folder, _: (folder / "report.html").touch())
    folders.write_classes(tmp_path / "data", 5)
    return ran


def test_a_step_whose_result_exists_is_skipped(commands, tmp_path, capsys):
    options = Options(str(tmp_path / "data"))
    fit(options, tmp_path / "run", dry_run=True)
    assert commands == [["draw"]]
    commands.clear()
    fit(options, tmp_path / "run")
    assert [command[0] for command in commands] == ["train", "export", "test", "test"]
    assert [Path(command[2]).name for command in commands[2:]] == ["model.onnx", "model.pth"]
    exported = json.loads((tmp_path / "run" / "export.json").read_text())
    assert exported == {"notes": [], "table": [["", "top-1, %"], ["model.onnx", "50.00"], ["model.pth", "50.00"]]}
    assert (tmp_path / "run" / "model.pth").read_text() == "best_accuracy_top1_iter_3.pth"
    capsys.readouterr()
    fit(options, tmp_path / "run")
    assert len(commands) == 4
    assert "continues" in capsys.readouterr().out
    (tmp_path / "run" / "model.pth").unlink()  # as if the training had been stopped
    fit(options, tmp_path / "run")
    assert commands[4][0] == "train"
    assert commands[4][-1] == "--resume"
    trained = len(commands)
    with pytest.raises(ValueError, match=r"epochs None, now 3.*--work-dir"):
        fit(Options(str(tmp_path / "data"), epochs=3), tmp_path / "run")
    assert len(commands) == trained


def test_changed_data_need_another_run(commands, tmp_path, capsys):
    """The first three changes are named; --restart removes the results of a run, and nothing else."""
    options, data, run = Options(str(tmp_path / "data")), tmp_path / "data", tmp_path / "run"
    fit(options, run)
    assert commands[0] == ["draw"]
    assert capsys.readouterr().out.startswith(f"{run}/samples.png shows twelve images")
    (run / "notes.md").write_text("mine")
    (data / "cat" / "cat_000.jpg").rename(data / "dog" / "cat_000.jpg")
    (data / "dog" / "dog_000.jpg").write_bytes((data / "dog" / "dog_001.jpg").read_bytes())
    ran = len(commands)
    changes = r"3 files .*\(dog/cat_000\.jpg is new; cat/cat_000\.jpg is missing; dog/dog_000\.jpg changed\).*--restart"
    with pytest.raises(ValueError, match=changes):
        fit(options, run)
    assert len(commands) == ran
    (data / "readme.md").write_text("no annotation")
    fit(options, run, restart=True)
    assert commands[ran + 1][0] == "train"
    assert "--resume" not in commands[ran + 1]
    assert (run / "notes.md").exists()
    (run / "data_hashes.json").unlink()
    fit(options, run)
    assert "does not state its data" in capsys.readouterr().out


def test_a_restart_removes_no_folder_that_is_not_a_run(commands, tmp_path):
    (tmp_path / "run" / "train").mkdir(parents=True)
    (tmp_path / "run" / "train" / "mine.txt").touch()
    fit(Options(str(tmp_path / "data")), tmp_path / "run", dry_run=True, restart=True)
    assert (tmp_path / "run" / "train" / "mine.txt").exists()


def test_a_refused_export_is_a_note(commands, tmp_path, monkeypatch, capsys):
    """Not the end of a run of hours."""
    write = module.run

    def refuse(name, *words, log=None, **_):
        if name == "export":
            log.write_text("a warning\nerror: a head cannot be exported\n")
            raise ChildProcessError("mmlisa export failed with exit status 2")
        write(name, *words, log=log)

    monkeypatch.setattr(module, "run", refuse)
    fit(Options(str(tmp_path / "data")), tmp_path / "run")
    exported = json.loads((tmp_path / "run" / "export.json").read_text())
    assert re.search(r": a head cannot be exported\..* mmlisa export .* --size", exported["notes"][0])
    assert [row[0] for row in exported["table"]] == ["", "model.pth"]
    assert "note: " in capsys.readouterr().out
    assert (tmp_path / "run" / "report.html").exists()


SCALE, RPN = "test_dataloader.dataset.pipeline.1.scale=", "model.test_cfg.rpn"


def test_tiles_are_compared_with_one_pass(tmp_path, monkeypatch):
    """A pass that fails is a row, and "-" stands where no object is counted."""
    (tmp_path / "data").mkdir()
    images = [dict(width=900, height=1400), dict(width=640, height=480)]
    (tmp_path / "data" / "val.json").write_text(json.dumps(dict(images=images)))
    test_cfg = dict(rpn=dict(nms_pre=500, max_per_img=200))
    (tmp_path / "plain.py").write_text(f"side = 320\nmodel = dict(test_cfg={test_cfg})")
    results = [dict(mAP=0.5, mAP_50=0.8, mAP_s=0.25, mAP_m=0.75, mAP_l=math.nan)]
    results += [dict.fromkeys(results[0], 0.0), None]
    seen = []

    def run(name, config, model, *words, log):
        seen.append((name, config.name, *words[3:-3]))
        if (result := results[len(seen) - 1]) is None:
            raise ChildProcessError
        (log.parent / "1").mkdir(parents=True)
        values = {f"coco/bbox_{name}": value for name, value in result.items()}
        (log.parent / "1" / "1.json").write_text(json.dumps(values | dict(time=len(seen))))

    monkeypatch.setattr(module, "run", run)
    module._compare(tmp_path)
    assert seen == [
        ("test", "config.py"),
        ("test", "plain.py", f"{SCALE}(640,640)", f"{RPN}.nms_pre=2000", f"{RPN}.max_per_img=800"),  # four tiles
        ("test", "plain.py", f"{SCALE}(1333,1333)", f"{RPN}.nms_pre=9000", f"{RPN}.max_per_img=3600"),
    ]
    assert json.loads((tmp_path / "comparison.json").read_text()) == [
        ["test", "AP", "AP50", "small", "medium", "large", "s per image"],
        ["tiles of 320 pixels", "0.500", "0.800", "0.250", "0.750", "-", "1.00"],
        ["one pass at 640 pixels", *["0.000"] * 5, "2.00"],
        ["one pass at 1333 pixels", *"-----", "failed, perhaps for memory"],
    ]


PROGRAM = """#!{python}
import os, pathlib, signal, sys, time
if "status" in sys.argv[-1]:
    sys.exit(int(sys.argv[-1][-1]))
def save(number, frame):
    time.sleep(0.3)
    pathlib.Path(sys.argv[-1]).write_text(str(number))
    sys.exit(128 + number)
signal.signal(signal.SIGTERM, save)
signal.signal(signal.SIGINT, save)
os.kill(os.getppid(), {number})
time.sleep(20)
"""


@pytest.fixture(params=[signal.SIGTERM, signal.SIGINT])
def number(request, tmp_path, monkeypatch):
    """The signal that a program in the place of Python sends to its parent."""
    program = tmp_path / "python"
    program.write_text(PROGRAM.format(python=sys.executable, number=int(request.param)))
    program.chmod(0o755)
    monkeypatch.setattr(module.sys, "executable", str(program))
    return request.param


def test_a_signal_reaches_the_command_and_waits_for_its_checkpoint(tmp_path, capsys, number):
    before = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)]
    with pytest.raises(SystemExit) as stopped:
        module.run("train", tmp_path / "checkpoint")
    assert stopped.value.code == 128 + number
    assert "the same mmlisa fit continues" in capsys.readouterr().err
    assert (tmp_path / "checkpoint").read_text() == str(int(number))
    assert [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)] == before


@pytest.mark.parametrize(
    ("code", "message"), [(1, r"status 1; see .*log\.txt; half$"), (2, r"status 2; see .*log\.txt$")]
)
def test_a_command_that_fails(tmp_path, number, code, message):
    """A mistake in the arguments has nothing to do with the memory."""
    with pytest.raises(ChildProcessError, match=message):
        module.run("train", f"status{code}", log=tmp_path / "log" / "log.txt", hint="; half")


def test_weights_are_looked_for_before_anything_is_written(tmp_path):
    folders.write_yolo(tmp_path / "data")
    with pytest.raises(OSError, match=r"absent\.pth"):
        fit(Options(str(tmp_path / "data"), weights=str(tmp_path / "absent.pth")), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_results_never_go_into_the_data(tmp_path):
    (tmp_path / "data").mkdir()
    with pytest.raises(ValueError, match="--work-dir"):
        fit(Options(str(tmp_path / "data")), tmp_path / "data" / "run")
    assert not list((tmp_path / "data").iterdir())


WRITERS = {
    "COCO": lambda demo, root: demo,
    "YOLO": folders.demo_as_yolo,
    "VOC": folders.demo_as_voc,
    "class maps": lambda demo, root: demo / "ade",
    "class folders": lambda demo, root: demo / "cls",
}


@pytest.fixture(params=WRITERS)
def data(request, tmp_path) -> Path:
    """The demo data, six images to train on and two to validate, in one of the formats."""
    pytest.importorskip("mmdet")
    make_demo(tmp_path / "demo", num_images={"train": 6, "val": 2})
    return WRITERS[request.param](tmp_path / "demo", tmp_path / "other")


def test_the_model_of_the_config_learns_from_its_data(data, tmp_path):
    fit(Options(str(data), size=32), tmp_path / "run", dry_run=True)
    cfg = load_config(str(tmp_path / "run" / "config.py"))
    init_default_scope(cfg.default_scope)
    dataset = DATASETS.build(cfg.train_dataloader.dataset)
    model = build_model(cfg)
    batch = model.data_preprocessor(pseudo_collate([dataset[0], dataset[1]]), training=True)
    loss, _ = model.parse_losses(model(**batch, mode="loss"))
    loss.backward()
    assert loss.isfinite()


@pytest.mark.nightly
def test_fit(data, tmp_path):
    """A whole run at the smallest size; nothing in the data changes."""
    before = {path: path.stat().st_mtime_ns for path in data.rglob("*")}
    fit(Options(str(data), epochs=1, size=32), tmp_path / "run")
    assert all((tmp_path / "run" / name).is_file() for name in ("config.py", "model.pth", "model.onnx", "report.html"))
    head, file, checkpoint = json.loads((tmp_path / "run" / "export.json").read_text())["table"]
    for title, ours, theirs in zip(head[1:], checkpoint[1:], file[1:], strict=True):
        # Rounding moves detections across IoU thresholds, and pixels between classes.
        assert float(theirs) == pytest.approx(float(ours), abs=0.1 if "%" in title else 0.001)
    assert {path: path.stat().st_mtime_ns for path in data.rglob("*")} == before


@pytest.mark.nightly
def test_fit_on_tiles(tmp_path):
    pytest.importorskip("mmdet")
    data = make_demo(tmp_path / "demo", num_images={"train": 6, "val": 2}, side=700)
    fit(Options(str(data), task="detection", epochs=1, batch=8, tile=320), tmp_path / "run")
    head, *rows = json.loads((tmp_path / "run" / "comparison.json").read_text())
    assert [row[0] for row in rows] == ["tiles of 320 pixels", "one pass at 640 pixels"]
    assert all(len(row) == len(head) and float(row[-1]) > 0 for row in rows)
    assert "Tiles or one pass" in (tmp_path / "run" / "report.html").read_text()
