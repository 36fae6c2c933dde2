"""check_env in environments that differ from this one."""

import json
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from mmlisa import check_env
from mmlisa.mmcv_ops import missing

ONEDL = {
    "onedl-mmengine": "0.10.12",
    "onedl-mmcv": "2.3.6",
    "onedl-mmdetection": "3.5.1",
    "onedl-mmsegmentation": "1.4.2",
    "onedl-mmpretrain": "1.3.6",
}
OPENMMLAB = {"mmengine": "0.10.5", "mmcv": "2.1.0", "mmdet": "3.3", "mmsegmentation": "1.2.2", "mmpretrain": "1.2"}
COMMON = {
    "mmlisa": "0.1.0",
    "torch": "2.12.1+cpu",
    "torchvision": "0.27.1+cpu",
    "timm": "1.0.31",
    "numpy": "2.1",
    "pillow": "12",
    "simplejpeg": "1.9",
}
COMMON |= dict.fromkeys(("scikit-image", "scikit-learn", "imaug", "pycocotools", "matplotlib", "ftfy", "regex"), "1.0")
ENVIRONMENT = json.dumps(
    {"Python": "3.11.7", "CUDA available": "True", "GPU 0": "NVIDIA H100", "MUSA available": "False"}
)


@pytest.fixture
def report(monkeypatch, capsys):
    """Runs main() in an environment of these distributions with these import errors; gives exit status and output."""

    def run(
        versions: dict[str, str], errors: dict[str, str] | None = None, compiled: str | None = None
    ) -> tuple[int, str]:
        def run_probes(probes):
            return {
                name: ((errors or {}).get(name, ""), ENVIRONMENT if name == "environment" else "") for name in probes
            }

        monkeypatch.setattr(check_env, "installed_version", versions.get)
        monkeypatch.setattr(check_env, "run_probes", run_probes)
        monkeypatch.setattr(check_env.mmcv_ops, "find_compiled", lambda: compiled)
        monkeypatch.setattr(missing, "find_spec", lambda name: name)  # there is a pip
        with pytest.raises(SystemExit) as stop:
            check_env.main([])
        return int(stop.value.code), capsys.readouterr().out

    return run


def test_healthy(report):
    for family in (ONEDL, OPENMMLAB):
        status, output = report(COMMON | family)
        assert status == 0, output
        assert "Everything is installed and works." in output
        for name in (*family, "torch", "timm", "mmcv ops", "GPU 0"):
            assert f"\n{name} " in output
        assert "NVIDIA H100" in output
        assert "MUSA" not in output


@pytest.mark.slow
def test_a_bare_environment(tmp_path):
    """For real: also shows that the module imports the standard library alone."""
    venv.create(tmp_path, with_pip=False)
    python, root = tmp_path / "bin" / "python", Path(__file__).parents[1]
    copy = f"import sys; sys.path.insert(0, {str(root)!r}); from mmlisa import check_env; "
    copy += "check_env.installed_version = lambda name: None; check_env.main([])"
    done = subprocess.run([python, "-c", copy], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert done.stderr == ""
    assert f'uv pip install --directory / --python {python} "mmlisa[onedl,demo]"' in done.stdout


def test_missing_packages_are_installed_together(report):
    status, output = report(COMMON)
    assert status == 1
    assert "* onedl-mmengine, onedl-mmcv, onedl-mmdetection, onedl-mmsegmentation, onedl-mmpretrain:\n" in output
    assert '"onedl-mmengine>=0.10.12" "onedl-mmcv>=2.3.6"' in output


def test_both_families(report):
    status, output = report(COMMON | ONEDL | {"mmcv": "2.1.0", "mmengine": "0.10.5"})
    assert status == 1
    assert "both families are installed" in output
    assert (
        "uninstall -y onedl-mmengine onedl-mmcv onedl-mmdetection onedl-mmsegmentation onedl-mmpretrain mmengine mmcv &&"
        in output
    )


@pytest.mark.parametrize(
    ("name", "error", "command"),
    [
        ("onedl-mmdetection", "ModuleNotFoundError: No module named 'terminaltables'", 'install "terminaltables"'),
        ("onedl-mmdetection", "ImportError: libGL.so.1: cannot open shared object file", "apt-get install -y libgl1"),
        ("onedl-mmdetection", "crashed (signal 11)", '--force-reinstall --no-deps --no-cache-dir "onedl-mmdetection>=3.5.1"'),
        ("onedl-mmdetection", "AssertionError: MMCV==2.2.0 is used but incompatible. Please install mmcv>=2.0.0rc4, <2.2.0.",
         'install "mmcv>=2.0.0rc4,<2.2.0"'),
        ("torchvision", "RuntimeError: operator torchvision::nms does not exist", '"torch==2.12.1" "torchvision==0.27.1"'),
    ],
)  # fmt: skip
def test_imports_that_fail(report, name, error, command):
    status, output = report(COMMON | ONEDL, {name: error})
    assert status == 1
    assert f"import fails: {error}" in output
    assert command in output


def test_a_release_of_transformers_that_breaks_mmpretrain(report):
    """Release 5.23 does; the error does not name it."""
    errors = {"onedl-mmpretrain": "TypeError: NoneType takes no arguments"}
    status, output = report(COMMON | ONEDL | {"transformers": "5.23.0"}, errors)
    assert status == 1
    assert "import fails beside transformers 5.23.0: TypeError" in output
    assert 'install "transformers<5"' in output


def test_compiled_operators_that_do_not_load(report):
    errors = {"mmcv ops": "ImportError: /mmcv/_ext.so: undefined symbol: _ZN2at"}
    status, output = report(COMMON | ONEDL, errors, compiled="/mmcv/_ext.so")
    assert status == 1
    assert "&& MMCV_WITH_OPS=1 " in output
    assert '--no-build-isolation --force-reinstall --no-deps --no-cache-dir "onedl-mmcv==2.3.6"' in output
    errors = {"mmcv ops": "RuntimeError: nms_impl: not compiled for CUDA"}
    assert "FORCE_CUDA=1 MMCV_WITH_OPS=1" in report(COMMON | ONEDL, errors, compiled="/mmcv/_ext.so")[1]


def test_too_old(report):
    status, output = report(COMMON | ONEDL | {"timm": "0.9.16"})
    assert status == 1
    assert "older than 1.0.22" in output
    assert 'install "timm>=1.0.22"' in output
    status, output = report(COMMON | OPENMMLAB | {"mmcv": "2.0.1"})
    assert status == 1
    assert "older than 2.1" in output


def test_demo_packages_are_optional(report):
    status, output = report({name: version for name, version in (COMMON | ONEDL).items() if name != "imaug"})
    assert status == 0
    assert "missing (optional)" in output
    assert 'install "mmlisa[demo]"' in output


def test_help_tries_nothing(monkeypatch, capsys):
    monkeypatch.setattr(check_env, "run_probes", lambda probes: pytest.fail("a probe ran"))
    with pytest.raises(SystemExit, match="0"):
        check_env.main(["--help"])
    assert "usage:" in capsys.readouterr().out


def test_the_pair_is_pyprojects():
    project = pytest.importorskip("tomllib").loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    assert set(check_env.TESTED_PAIR) <= set(project["tool"]["uv"]["constraint-dependencies"])


@pytest.mark.slow
@pytest.mark.parametrize("name", check_env.PROBES)
def test_probes_pass_in_this_environment(name):
    done = subprocess.run([sys.executable, "-c", check_env.PROBES[name]], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
