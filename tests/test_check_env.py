"""check_env on environments that are not this one."""

import subprocess
import venv
from pathlib import Path

import pytest

from mmlisa import check_env

HEALTHY = {
    "torch": "2.12.1+cpu",
    "torchvision": "0.27.1+cpu",
    "timm": "1.0.31",
    **dict(check_env.FAMILIES["onedl"].values()),
    **dict.fromkeys(check_env.DEMO.values(), "1.0"),
}
DISTRIBUTIONS = {name: distribution for name, (distribution, _) in check_env.FAMILIES["onedl"].items()} | check_env.DEMO


@pytest.fixture
def report(monkeypatch, capsys):
    """Runs main() in an environment of these distributions, where these probes end so; gives exit status and output."""

    def run(
        versions: dict[str, str], results: dict[str, check_env.Result] | None = None, compiled: str | None = None
    ) -> tuple[int, str]:
        def fake_probe(name):
            if results and name in results:
                return results[name]
            if name in ("CUDA", "mmcv ops"):
                return check_env.Result(True, "")
            family = check_env.FAMILIES["openmmlab"]
            version = versions.get(DISTRIBUTIONS.get(name, name)) or (name in family and versions.get(family[name][0]))
            return check_env.Result(bool(version), version or f"ModuleNotFoundError: No module named '{name}'")

        monkeypatch.setattr(check_env, "installed_version", versions.get)
        monkeypatch.setattr(check_env, "run_probes", lambda probes: {name: fake_probe(name) for name in probes})
        monkeypatch.setattr(check_env.mmcv_ops, "find_compiled", lambda: compiled)
        monkeypatch.setattr(check_env, "find_spec", lambda name: name)  # there is a pip
        with pytest.raises(SystemExit) as stop:
            check_env.main([])
        return int(stop.value.code), capsys.readouterr().out

    return run


def _failed(text: str) -> check_env.Result:
    return check_env.Result(False, text)


def _fix(output: str, name: str) -> str:
    """The lines that say how to fix something."""
    (lines,) = [part for part in output.split("\n* ")[1:] if name in part.split(": ")[0].split(", ")]
    return lines


def test_healthy(report):
    status, output = report(HEALTHY, {"CUDA": check_env.Result(True, "12.8, NVIDIA H100")})
    assert status == 0
    assert "Everything is there." in output
    assert "ok: NVIDIA H100" in output
    for name in ("Python", "torch", "torchvision", "CUDA", "timm", "family", "mmcv ops", *check_env.FAMILIES["onedl"]):
        assert f"\n{name} " in output


def test_nothing_there_in_a_bare_environment(tmp_path):
    """For real: also shows that it imports the standard library alone."""
    venv.create(tmp_path, with_pip=False)
    python = tmp_path / "bin" / "python"
    done = subprocess.run(
        [python, "-m", "mmlisa.check_env"], cwd=Path(__file__).parents[1], capture_output=True, text=True
    )
    assert done.returncode == 1, done.stderr
    assert done.stderr == ""
    assert f'uv pip install --directory / --python {python} "torch==2.12.1" "torchvision==0.27.1"' in _fix(
        done.stdout, "torch"
    )
    assert "* scikit-image, scikit-learn, imaug, pycocotools, matplotlib: missing" in done.stdout
    mmcv = _fix(done.stdout, "mmcv")
    assert "uv:  uv sync\n" in mmcv
    assert '"onedl-mmcv>=2.3.6"' in mmcv
    assert "MMCV_WITH_OPS" not in done.stdout
    assert "missing (optional)" in done.stdout


def test_says_which_operators_are_in_use(report):
    assert "ok: torchvision's, through mmlisa.mmcv_ops" in report(HEALTHY)[1]
    assert "ok: compiled" in report(HEALTHY, compiled="/mmcv/_ext.so")[1]


def test_compiled_operators_that_do_not_load(report):
    broken = _failed("ImportError: /mmcv/_ext.so: undefined symbol: _ZN2at")
    status, output = report(HEALTHY, {"mmcv ops": broken, "mmdet": broken}, compiled="/mmcv/_ext.so")
    assert status == 1
    ops = _fix(output, "mmcv ops")
    assert "uv:  uv sync --reinstall-package onedl-mmcv\n" in ops  # the way without compiled ones
    assert "&& MMCV_WITH_OPS=1 " in ops
    assert '--no-build-isolation --force-reinstall --no-deps --no-cache-dir "onedl-mmcv==2.3.6"' in ops
    assert "* mmcv:" not in output


def test_compiled_operators_without_cuda(report):
    on_cpu = check_env.Result(True, "on CUDA: nms_impl: not compiled")
    status, output = report(HEALTHY, {"mmcv ops": on_cpu}, compiled="/mmcv/_ext.so")
    assert status == 1
    assert "FORCE_CUDA=1 MMCV_WITH_OPS=1" in _fix(output, "mmcv ops")


def test_both_families(report):
    status, output = report({**HEALTHY, "mmcv": "2.1.0", "mmengine": "0.10.5"})
    assert status == 1
    family = _fix(output, "family")
    assert "uninstall" in family
    for name in ("onedl-mmcv", "onedl-mmpretrain", "mmengine", "mmcv"):
        assert f" {name} " in family.split("&&")[0] + " "
    assert "onedl-mmdetection>=3.5.1" in family.split("&&")[-1]


def test_original_family(report):
    versions = {name: version for name, version in HEALTHY.items() if not name.startswith("onedl")}
    versions |= dict(check_env.FAMILIES["openmmlab"].values())
    status, output = report(versions)
    assert status == 0
    assert "openmmlab" in output
    message = "AssertionError: MMCV==2.2.0 is used but incompatible. Please install mmcv>=2.0.0rc4, <2.2.0."
    status, output = report(versions, {"mmdet": _failed(message)})
    assert status == 1
    assert '"mmcv>=2.0.0rc4,<2.2.0"' in _fix(output, "mmdet")
    del versions["mmsegmentation"]
    status, output = report(versions)
    assert status == 1
    assert '"mmsegmentation>=1.2.2"' in _fix(output, "mmseg")
    assert "uv sync --no-dev --extra openmmlab" in _fix(output, "mmseg")


@pytest.mark.parametrize(
    ("torch", "torchvision", "command"),
    [
        ("2.13.0", "0.27.1", '"torch==2.13.0" "torchvision==0.28.*"'),
        ("2.12.1+cpu", "0.27.1", '--force-reinstall "torch==2.12.1" "torchvision==0.27.1"'),
        ("2.12.1", None, '"torch==2.12.1" "torchvision==0.27.*"'),
        ("2.1.0", "0.16.0", '"torch==2.12.1" "torchvision==0.27.1"'),  # torch itself is too old
    ],
)
def test_torch_and_torchvision_that_are_no_pair(report, torch, torchvision, command):
    versions = {**HEALTHY, "torch": torch, "torchvision": torchvision}
    status, output = report(
        versions, {"torchvision": _failed("RuntimeError: operator torchvision::nms does not exist")}
    )
    assert status == 1
    assert command in _fix(output, "torchvision")


def test_too_old(report):
    status, output = report({**HEALTHY, "timm": "0.9.16"})
    assert status == 1
    assert "older than 1.0.22" in output
    assert '"timm>=1.0.22"' in _fix(output, "timm")


def test_demo_packages_are_optional(report):
    status, output = report({name: version for name, version in HEALTHY.items() if name != "imaug"})
    assert status == 0
    assert 'install "imaug"' in _fix(output, "imaug")


@pytest.mark.parametrize(
    ("error", "command"),
    [
        ("ModuleNotFoundError: No module named 'terminaltables'", 'install "terminaltables"'),
        ("ImportError: libGL.so.1: cannot open shared object file", "apt-get install -y libgl1"),
        ("crashed (signal 11)", "--force-reinstall"),
    ],
)
def test_imports_that_fail(report, error, command):
    status, output = report(HEALTHY, {"mmdet": _failed(error)})
    assert status == 1
    assert f"import fails: {error}" in output
    assert command in _fix(output, "mmdet")


def test_help_tries_nothing(monkeypatch, capsys):
    monkeypatch.setattr(check_env, "run_probes", lambda probes: pytest.fail("a probe ran"))
    with pytest.raises(SystemExit, match="0"):
        check_env.main(["--help"])
    assert "usage:" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        check_env.main(["--frobnicate"])


def test_probes():
    codes = {
        "noise": "import os; print('noise'); os.system('echo more'); print('1.2')",
        "error": "raise ImportError('no such\\nthing')",
        "crash": "import os; os.abort()",
        "exit": "raise SystemExit(0)",
        "after": "print('still here')",
        "loop": "while True: pass",
        "last": "",
    }
    assert check_env.run_probes(codes, timeout=5) == {
        "noise": (True, "1.2"),
        "error": (False, "thing"),
        "crash": (False, "crashed (signal 6)"),
        "exit": (False, "SystemExit: 0"),
        "after": (True, "still here"),
        "loop": (False, "did not finish within 5 s"),
        "last": (True, ""),
    }


def test_bounds_are_pyprojects():
    project = pytest.importorskip("tomllib").loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    declared, tool = project["project"], project["tool"]["uv"]
    for family, packages in check_env.FAMILIES.items():
        wanted = {f"{distribution}>={minimum}" for distribution, minimum in packages.values()}
        assert wanted == set(declared["optional-dependencies"][family]) - {"ftfy", "regex"}
    assert {f"{name}>={minimum}" for name, minimum in check_env.REQUIREMENTS.items()} <= set(declared["dependencies"])
    assert set(check_env.DEMO.values()) == set(declared["optional-dependencies"]["demo"])
    assert set(check_env.TESTED_PAIR) <= set(tool["constraint-dependencies"])
    assert declared["requires-python"] == ">=" + ".".join(map(str, check_env.PYTHON))


@pytest.mark.parametrize("name", check_env.PROBES)
def test_probes_pass_in_this_environment(name, capsys):
    exec(check_env.PROBES[name], {})
    *_, last = capsys.readouterr().out.splitlines()
    assert name == "CUDA" or not last.startswith("on CUDA")
