"""What ``mmlisa fit`` answers when its folder holds a run: the question, and the refusal where nobody can be asked."""

import pytest

import fit
from mmlisa.fit import run as module
from mmlisa.fit.run import STEPS, write


@pytest.fixture
def ran(tmp_path, monkeypatch):
    """The names of the steps that ran; they do nothing, and the training is stopped the first time."""
    names = []
    for name in STEPS:

        def step(run, name=name):
            names.append(name)
            if names.count("train") == 1 and name == "train":
                raise KeyboardInterrupt
            write(run.config if name == "config" else run.folder / name, name)

        monkeypatch.setitem(STEPS, name, step)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("signal.signal", lambda *args: None)  # the handler of SIGTERM stays pytest's
    with pytest.raises(KeyboardInterrupt):
        fit.main(fit.parse_args(["data"]))
    assert names == ["config", "check-data", "train"]
    return names


def test_without_a_terminal_the_run_is_not_continued(ran, monkeypatch):
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    with pytest.raises(
        ValueError, match=r"holds this run, stopped before train; add --resume to continue it, or --work"
    ):
        fit.main(fit.parse_args(["data"]))
    assert len(ran) == 3
    fit.main(fit.parse_args(["data", "--resume"]))
    assert ran[3:] == ["train", "test", "export", "report"]


@pytest.mark.parametrize(("answer", "continues"), [("", True), ("y", True), ("n", False), ("No", False)])
def test_the_user_is_asked(ran, monkeypatch, answer, continues):
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda question: answer)
    if continues:
        fit.main(fit.parse_args(["data"]))
        assert ran[3:] == ["train", "test", "export", "report"]
    else:
        with pytest.raises(ValueError, match="not continued; --work-dir names the folder of a new run"):
            fit.main(fit.parse_args(["data"]))
        assert len(ran) == 3


def test_a_finished_run_is_shown(ran, capsys):
    fit.main(fit.parse_args(["data", "--resume"]))
    number = len(ran)
    fit.main(fit.parse_args(["data"]))
    assert len(ran) == number
    assert "this run is finished: work_dirs/fit/data-" in capsys.readouterr().out
    fit.main(fit.parse_args(["data", "--epochs", "2"]))  # other options, another folder
    assert ran[number:] == list(module.STEPS)


@pytest.mark.parametrize("spelling", ["data/", "./data", "{}/data", "{}/data/"])
def test_a_folder_has_one_run_however_it_is_spelt(ran, tmp_path, spelling):
    fit.main(fit.parse_args([spelling.format(tmp_path), "--resume"]))
    assert ran[3:] == ["train", "test", "export", "report"]


def test_a_folder_has_one_name_in_a_work_dir(ran, capsys):
    fit.main(fit.parse_args(["data/", "--work-dir", "run"]))
    fit.main(fit.parse_args(["data", "--work-dir", "run"]))
    assert "this run is finished: run/report.html" in capsys.readouterr().out


@pytest.mark.parametrize(("text", "batch"), [("auto", None), ("8", 8)])
def test_batch(text, batch):
    assert fit.parse_args(["data", "--batch", text]).batch == batch


def test_changed_data_start_a_new_run(ran, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(module.Run, "data_changed", True)
    with pytest.raises(ValueError, match=r"data has changed since the run in .* read it; name the folder of a new run"):
        fit.main(fit.parse_args(["data"]))
    assert len(ran) == 3
    fit.main(fit.parse_args(["data", "--resume"]))
    assert ran[3:] == ["train", "test", "export", "report"]
