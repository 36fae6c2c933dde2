"""The command that trains: what it prints at the end."""

import runpy
from types import SimpleNamespace

import pytest

from mmlisa import cli


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
    report = runpy.run_path(str(cli.commands()["train"]))["report"]
    report(runner, SimpleNamespace(config="configs/mine.py", cfg_options=options))
    test, infer = capsys.readouterr().out.splitlines()[-2:]
    assert test.endswith(f" {config} run/iter_2.pth")
    assert infer.endswith(f" {config} run/iter_2.pth IMAGE …")
