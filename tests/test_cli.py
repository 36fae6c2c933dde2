"""The console script, and what the tools have in common."""

import argparse
import errno
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from mmlisa import cli


def test_no_tool_imports_anything_heavy_for_its_help():
    """All in one process, since starting one takes longer than the help."""
    script = """
import runpy, sys
from mmlisa import cli
sys.path.insert(0, str(cli.tools_folder()))
for name, path in cli.commands().items():
    sys.argv = [str(path), "--help"]
    try:
        runpy.run_path(str(path), run_name="__main__")
    except SystemExit as end:
        assert end.code == 0, name
    heavy = {"torch", "mmengine", "cv2", "numpy", "matplotlib"} & set(sys.modules)
    assert not heavy, (name, heavy)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("--debug") >= 2 * 8  # each in its usage and its list


def test_every_tool_is_a_command(capsys):
    assert {
        "train",
        "test",
        "infer",
        "convert",
        "visualize",
        "benchmark",
        "tables",
        "check",
        "demo",
        "check-data",
    } <= set(cli.commands())
    cli.main(["--help"])
    out = capsys.readouterr().out
    assert all(f"  {name} " in out for name in cli.commands())
    with pytest.raises(SystemExit, match="2"):
        cli.main(["trian"])
    assert "did you mean train?" in capsys.readouterr().err


def test_a_command_runs_its_file_and_is_called_by_its_name(capsys):
    with pytest.raises(SystemExit, match="0"):
        cli.main(["infer", "--help"])
    assert capsys.readouterr().out.startswith("usage: mmlisa infer ")
    assert cli.command("check-data") == "mmlisa check-data"


@pytest.fixture(autouse=True)
def program(monkeypatch):
    monkeypatch.setattr(cli, "_program", None)
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.delenv("UV_RUN_RECURSION_DEPTH", raising=False)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))


def test_the_next_command_is_typed_like_this_one(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["tools/train.py"])
    assert cli.command("check-data") == "python tools/check_data.py"
    assert cli.command("tables") == "python tools/paper_tables.py"
    monkeypatch.setattr(sys, "argv", ["/venv/bin/mmlisa"])
    assert cli.command("check-data") == "mmlisa check-data"
    monkeypatch.setenv("UV_RUN_RECURSION_DEPTH", "1")
    assert cli.command("check-data") == "uv run mmlisa check-data"


def test_the_next_command_runs_where_the_environment_is_not_activated(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["/venv/bin/mmlisa"])
    done = subprocess.run([*cli.command("infer").split(), "--help"], capture_output=True, text=True)
    assert done.stdout.startswith("usage: mmlisa infer"), done.stderr
    monkeypatch.setattr(sys, "argv", [str(cli.tools_folder() / "train.py")])
    done = subprocess.run([*cli.command("infer").split(), "--help"], capture_output=True, text=True)
    assert done.stdout.startswith("usage: infer.py"), done.stderr


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ValueError("lr is -1"), 2, "error: lr is -1"),
        (FileNotFoundError(errno.ENOENT, "No such file", "a.py"), 2, "error: [Errno 2] No such file: 'a.py'"),
        (FloatingPointError("loss is nan"), 1, "error: loss is nan"),
        (ChildProcessError("a worker was killed"), 1, "error: a worker was killed"),
        (OSError(errno.ENOSPC, "the disk is full"), 1, "error: the disk is full"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (
            FileNotFoundError(
                "Caught FileNotFoundError in DataLoader worker process 0.\nOriginal Traceback …\n\n"
                "FileNotFoundError: [Errno 2] No such file or directory: 'a.jpg'\n"
            ),
            2,
            "error: [Errno 2] No such file or directory: 'a.jpg'",
        ),
        (
            ValueError("Caught ValueError in DataLoader worker process 1.\n…\nValueError: label 7\n  allowed: 0, 1"),
            2,
            "error: label 7\n  allowed: 0, 1",
        ),
        (ValueError("Caught ValueError in DataLoader worker process 1.\n…\nValueError\n"), 2, "error: ValueError"),
    ],
)
def test_what_users_can_get_wrong_ends_in_one_line(capsys, error, code, message):
    def main(args):
        raise error

    with pytest.raises(SystemExit) as end:
        cli.run(main, argparse.Namespace(debug=False, verbose=False))
    assert end.value.code == code
    assert capsys.readouterr().err == message + "\n"
    with pytest.raises(type(error)):
        cli.run(main, argparse.Namespace(debug=True, verbose=False))


def test_a_bug_keeps_its_traceback():
    def main(args):
        raise AssertionError

    with pytest.raises(AssertionError):
        cli.run(main, argparse.Namespace(debug=False, verbose=False))


@pytest.mark.parametrize(
    ("name", "words", "names", "found"),
    [
        ("infer", "c.py w.pth --out-dir pictures a.png --score-thr 0.5 b.png", "config images", ["c.py", ["a.png", "b.png"]]),
        ("infer", "model.onnx --json a.json a.png b.png", "checkpoint images", ["model.onnx", ["a.png", "b.png"]]),
        ("curves", "one --out curves.png two", "work_dirs", [["one", "two"]]),
        ("convert", "timm:a --ema b.pth", "files", [["timm:a", "b.pth"]]),
    ],
)  # fmt: skip
def test_options_may_stand_between_the_files(name, words, names, found):
    args = runpy.run_path(str(cli.commands()[name]))["parse_args"](words.split())
    assert [getattr(args, each) for each in names.split()] == found
