"""A run's folder: its options, its steps, signals, and the user's folder, which stays as it is."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from helpers import folders
from mmlisa.fit import run as module
from mmlisa.fit.run import STEPS, Options, Run, command, fit, write


@pytest.fixture
def steps(monkeypatch):
    """The names of the steps that ran, which do nothing but write a file of their name."""
    ran = []
    for name in STEPS:

        def step(run, name=name):
            ran.append(name)
            write(run.config if name == "config" else run.folder / name, name)

        monkeypatch.setitem(STEPS, name, step)
    return ran


def test_other_options_have_a_folder_of_their_own():
    first, *others = (
        Options("a/b").folder(),
        Options("a/b", size=64).folder(),
        Options("a/b", epochs=1).folder(),
        Options("c/b").folder(),
    )
    assert first == Options("a/b").folder()
    assert first.name.startswith("b-")
    assert len({first, *others}) == 4


def test_steps_are_done_once(tmp_path, steps):
    options = Options(str(tmp_path / "data"))
    fit(Run.open(tmp_path / "run", options), dry_run=True)
    assert steps == ["config"]
    fit(Run.open(tmp_path / "run", options))
    assert steps == list(STEPS)
    fit(Run.open(tmp_path / "run", options))
    assert steps == list(STEPS)


@pytest.mark.parametrize("stopped", STEPS)
def test_a_stopped_step_is_repeated(tmp_path, steps, monkeypatch, stopped):
    options, names = Options(str(tmp_path / "data")), list(STEPS)

    def stop(run):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setitem(STEPS, stopped, stop)
        with pytest.raises(KeyboardInterrupt):
            fit(Run.open(tmp_path / "run", options))
    assert steps == names[: names.index(stopped)]
    fit(Run.open(tmp_path / "run", options))
    assert steps == names


def test_folders_of_others_are_refused(tmp_path, steps):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("x")
    with pytest.raises(ValueError, match=r"thesis' holds something other than a run of mmlisa fit; name another"):
        Run.open(tmp_path / "thesis", Options("data"))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".run.json.123.partial").touch()  # killed while it wrote its first file
    fit(Run.open(tmp_path / "run", Options("data", size=64)))
    with pytest.raises(ValueError, match=r"a run with size=64, not None; name another folder"):
        Run.open(tmp_path / "run", Options("data"))


def test_results_never_go_into_the_data(tmp_path, steps):
    data = tmp_path / "data"
    data.mkdir()
    with pytest.raises(ValueError, match="inside of the data, which are never changed: start the command elsewhere"):
        fit(Run.open(data / "work_dirs" / "run", Options(str(data))))
    assert not list(data.iterdir())


def test_the_checkpoint_is_the_newest_of_the_best_or_else_the_last(tmp_path):
    run, train = Run(tmp_path, Options("data")), tmp_path / "train"
    assert run.checkpoint is None
    write(train / "last_checkpoint", str(train / "iter_9.pth"))
    assert run.checkpoint == train / "iter_9.pth"
    for seconds, name in enumerate(("best_mIoU_iter_9.pth", "best_mIoU_iter_10.pth", "best_mIoU_iter_3.pth")):
        write(train / name, "")
        os.utime(train / name, (seconds, seconds))
    assert run.checkpoint == train / "best_mIoU_iter_3.pth"


def test_a_file_is_whole_or_absent(tmp_path, monkeypatch):
    write(tmp_path / "a", "old")

    def fail(*args):
        raise OSError("full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="full"):
        write(tmp_path / "a", "new")
    assert (tmp_path / "a").read_text() == "old"


def test_commands_can_be_typed():
    assert command("train", Path("a b/config.py")).endswith(" 'a b/config.py'")
    assert str(Options("my data", epochs=3, weights="timm:x")) == "'my data' --weights timm:x --epochs 3"


@pytest.mark.parametrize(
    ("printed", "reason"), [("x\\nerror: bad\\nlast", "bad"), ("x\\nlast", "last"), ("", "it ended without a message")]
)
def test_a_process_that_fails_gives_its_error(capfd, printed, reason):
    code = f"import sys; print('{printed}', file=sys.stderr); sys.exit(3)"
    with pytest.raises(ChildProcessError, match=f"failed: {reason}$"):
        module._call("-c", code)
    assert capfd.readouterr().out == printed.replace("\\n", "\n") + "\n"
    module._call("-c", code, accepted=(3,), show=False)
    assert capfd.readouterr().out == ""


def test_files_of_the_current_folder_are_not_imported(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    for name in ("queue", "shlex"):
        Path(f"{name}.py").write_text("raise SystemExit('imported')")
    module._mmlisa("--version")
    assert "imported" not in capfd.readouterr().out


@pytest.mark.parametrize("name", ["cats\nraise SystemExit", "cats\rraise SystemExit"])
def test_line_breaks_in_names_stay_in_the_comments(tmp_path, monkeypatch, name):
    measured = dict(seconds_per_image=0.1, per_image=2**20, fixed=0, available=2**34, unavailable="")
    monkeypatch.setattr(module, "_call", lambda *words, **options: Path(words[4]).write_text(json.dumps(measured)))
    run = Run.open(tmp_path / name / "run", Options(str(folders.write_classes(tmp_path / name / "data"))))
    fit(run, dry_run=True)
    assert not [line for line in run.config.read_text().splitlines() if line.startswith("raise SystemExit")]


@pytest.mark.parametrize("unavailable", ["", "no route to the host"])
def test_without_a_network_the_training_starts_from_random_weights(tmp_path, monkeypatch, capsys, unavailable):
    measured = dict(seconds_per_image=0.1, per_image=2**20, fixed=0, available=2**34, unavailable=unavailable)
    monkeypatch.setattr(module, "_call", lambda *words, **options: Path(words[4]).write_text(json.dumps(measured)))
    run = Run.open(tmp_path / "run", Options(str(folders.write_classes(tmp_path / "data")), model="ivit-t"))
    fit(run, dry_run=True)
    text = run.config.read_text()
    assert ("mmlisa.PublishedWeights" in text) == (not unavailable)
    assert ("The training starts from random weights, which lowers the accuracy." in text) == bool(unavailable)
    assert any("(no route to the host)" in note for note in run.facts["notes"]) == bool(unavailable)
    assert "measuring a training step" in capsys.readouterr().out


@pytest.mark.fault
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_after_a_signal_the_step_is_ended_and_waited_for(tmp_path, number):
    child = (
        "import pathlib, signal, sys, time\n"
        "def end(number, frame):\n    time.sleep(0.5); pathlib.Path('saved').write_text(str(number)); sys.exit(128 + number)\n"
        "signal.signal(signal.SIGINT, end); signal.signal(signal.SIGTERM, end)\n"
        "pathlib.Path('ready').touch(); time.sleep(60)"
    )
    call = f"_call('-c', {child!r})"
    parent = (
        f"import signal\nsignal.signal({int(number)}, signal.default_int_handler)\nfrom mmlisa.fit.run import _call\n"
    )
    parent += f"try:\n    {call}\nexcept KeyboardInterrupt:\n    print('stopped')"
    process = subprocess.Popen([sys.executable, "-c", parent], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    wait_for(tmp_path / "ready")
    process.send_signal(number)
    assert process.communicate(timeout=60)[0] == "stopped\n"
    assert (tmp_path / "saved").read_text() == str(int(signal.SIGTERM))


@pytest.mark.fault
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of its parent's end")
def test_the_death_of_fit_ends_the_training_with_a_checkpoint(tmp_path):
    child = (
        "import pathlib, signal, sys, time\n"
        "def end(number, frame):\n    pathlib.Path('saved').touch(); sys.exit(143)\n"
        "signal.signal(signal.SIGTERM, end)\npathlib.Path('ready').touch(); time.sleep(60)"
    )
    parent = f"from mmlisa.fit.run import _call\n_call('-c', {child!r})"
    process = subprocess.Popen([sys.executable, "-c", parent], cwd=tmp_path)
    wait_for(tmp_path / "ready")
    process.kill()
    wait_for(tmp_path / "saved")


def wait_for(path):
    for _ in range(600):
        if path.exists():
            return
        time.sleep(0.1)
    raise AssertionError(f"{path} did not appear")


@pytest.mark.fault
@pytest.mark.parametrize("seconds", [0.05, 0.3, 0.6, 1.0, 1.5])
def test_killed_while_it_writes_the_data(tmp_path, seconds):
    """Killed at moments of the conversion and started again, the annotations are those of a run that was not killed."""
    folders.write_classes(tmp_path / "data", 60)
    script = (
        "import sys\nfrom pathlib import Path\nfrom mmlisa.fit.run import *\nfrom mmlisa.fit import run as m\n"
        "r = Run.open(Path(sys.argv[1]), Options('data'))\nPath(sys.argv[1] + '.ready').touch()\n"
        "d = prepare_data(r.options.data)\nr.save()\nm._write_data(r, d)\nr.save()"
    )
    arguments = [sys.executable, "-c", script]
    subprocess.run([*arguments, "whole"], cwd=tmp_path, check=True)
    process = subprocess.Popen([*arguments, "killed"], cwd=tmp_path)
    wait_for(tmp_path / "killed.ready")
    time.sleep(seconds)
    process.kill()
    process.wait()
    for file in (tmp_path / "killed").rglob("*.json"):
        json.loads(file.read_text())  # whole
    subprocess.run([*arguments, "killed"], cwd=tmp_path, check=True)
    for name in ("train.txt", "val.txt", "test.txt", "split.json"):
        assert (tmp_path / "killed" / "data" / name).read_text() == (tmp_path / "whole" / "data" / name).read_text()


def test_findings_in_the_data_do_not_end_a_run(monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr(module, "_call", lambda *words, accepted: seen.append(accepted))
    module._check_data(Run(tmp_path, Options("d"), facts={"counts": {"train": 1}}))
    assert seen == [(0, 1)]


def test_the_memory_of_the_training_is_in_gib(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "_call", lambda *words, accepted: None)
    monkeypatch.setattr("mmlisa.memory.peak_megabytes", lambda of_children: 2560 * of_children)
    run = Run(tmp_path, Options("d"))
    module._train(run)
    assert run.facts["memory"] == 2.5


def test_changed_data_are_noticed(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    (data / "1.txt").write_text("cat")
    run = Run(tmp_path / "run", Options(str(data)), data=module._hash_of_files(str(data)))
    run.done["config"] = 1.0
    run.save()
    assert not Run.open(run.folder, run.options).data_changed
    (data / ".DS_Store").touch()
    assert not run.data_changed
    (data / "1.txt").write_text("newt")
    assert Run.open(run.folder, run.options).data_changed
    run.done.clear()  # the config is written again
    assert not run.data_changed
