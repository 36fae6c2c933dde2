"""The command that trains: its devices, and what it prints at the end."""

import os
import runpy
import sys
from types import SimpleNamespace

import pytest

from mmlisa import cli

TRAIN = runpy.run_path(str(cli.commands()["train"]))


@pytest.mark.parametrize(("options", "config"), [([], "configs/mine.py"), (["a.b=1"], "run/mine.py")])
def test_the_next_commands_have_the_options_of_the_training(tmp_path, monkeypatch, capsys, options, config):
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "run"
    runner = SimpleNamespace(
        rank=0,
        iter=2,
        work_dir=str(run),
        log_dir=str(run / "log"),
        cfg=SimpleNamespace(filename=str(tmp_path / "configs" / "mine.py")),
        message_hub=SimpleNamespace(runtime_info={"last_ckpt": str(run / "iter_2.pth")}),
    )
    TRAIN["report"](runner, SimpleNamespace(config="configs/mine.py", cfg_options=options))
    test, infer = capsys.readouterr().out.splitlines()[-2:]
    assert test.endswith(f" {config} run/iter_2.pth")
    assert infer.endswith(f" {config} run/iter_2.pth IMAGE …")


@pytest.mark.parametrize(
    ("options", "noted"), [([], True), (["--cfg-options", "resume=False", "load_from=None"], False)]
)
def test_a_config_that_resumes_is_noted(tmp_path, monkeypatch, capsys, options, noted):
    """As the config is that MMEngine writes when it resumes."""
    (tmp_path / "mine.py").write_text("model = dict()\nresume = True\nload_from = 'x/iter_2.pth'\n")
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setattr("mmlisa.training.runner.build_runner", lambda cfg, *_, **__: sys.exit(int(cfg.resume)))
    with pytest.raises(SystemExit, match=str(int(noted))):
        TRAIN["main"](TRAIN["parse_args"]([f"{tmp_path}/mine.py", "--work-dir", f"{tmp_path}/again", *options]))
    assert ("the config itself resumes from x/iter_2.pth" in capsys.readouterr().out) is noted


@pytest.mark.parametrize(("device", "visible"), [("cuda", "2,3"), ("cpu", "-1")])
def test_the_processes_of_a_launcher_see_all_gpus(monkeypatch, device, visible):
    """Each takes the one of its rank."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    monkeypatch.setenv("LOCAL_RANK", "1")
    with pytest.raises(FileNotFoundError, match="nosuch"):
        TRAIN["main"](TRAIN["parse_args"](["nosuch.py", "--launcher", "pytorch", "--device", device]))
    assert os.environ["CUDA_VISIBLE_DEVICES"] == visible


def test_a_launcher_and_one_gpu_are_refused(capsys):
    with pytest.raises(SystemExit):
        TRAIN["parse_args"](["mine.py", "--launcher", "slurm", "--device", "cuda:1"])
    assert "each process of a launcher trains on a GPU of its own" in " ".join(capsys.readouterr().err.split())
