"""Mistakes in arguments are named with argument, value and remedy, before any library is imported."""

import argparse
import ctypes
import json
import os
import shutil
import subprocess
import sys

import pytest

from mmlisa import cli, options


@pytest.fixture
def files(tmp_path):
    (tmp_path / "config.py").write_text("model = dict()\n")
    (tmp_path / "weights.pth").write_bytes(b"0")
    (tmp_path / "coco.json").write_text(json.dumps({"images": [], "annotations": []}))
    (tmp_path / "config.json").write_text(json.dumps({"model": {}}))
    (tmp_path / "folder").mkdir()
    return tmp_path


MISTAKES = {
    "config does not exist": (dict(config="{0}/confg.py"), r"confg\.py' does not exist; the closest in '.*' are config\.py"),
    "config is a checkpoint": (dict(config="{0}/weights.pth"), r"CONFIG '.*' is a checkpoint, not a config"),
    "checkpoint is a config": (dict(checkpoint="{0}/config.py"), r"CHECKPOINT '.*' is a config, not a checkpoint"),
    "config is a folder": (dict(config="{0}/folder"), r"CONFIG '.*/folder' is a folder"),
    "config is a COCO file": (dict(config="{0}/coco.json"), r"coco\.json' is a COCO annotation file, not a config"),
    "config of another suffix": (dict(config="{0}/coco.txt"), r"is not a config: its suffix must be one of \.py"),
    "no such checkpoint": (dict(checkpoint="{0}/none.pth"), r"CHECKPOINT '.*none\.pth' does not exist"),
    "checkpoint is a folder": (dict(checkpoint="{0}"), r"is a folder, not a checkpoint file; it holds weights\.pth"),
    "resume from nothing": (dict(resume="{0}/none.pth"), r"--resume '.*none\.pth' does not exist"),
    "no such image": (dict(images=["{0}/folder", "{0}/cat.jpg"]), r"IMAGES '.*cat\.jpg' does not exist"),
    "work dir in a file": (dict(work_dir="{0}/config.py/run"), r"--work-dir '.*' cannot be written: .*is not a folder"),
    "JSON is a folder": (dict(json="{0}/folder"), r"--json '.*/folder' is a folder; name a file in it"),
    "JSON in a file": (dict(json="{0}/config.py/out.json"), r"--json '.*' cannot be written"),
    "score in percent": (dict(score_thr=50.0), r"--score-thr '50' is not a number from 0 to 1; did you mean 0\.5\?"),
    "negative share": (dict(min_matched=-1.0), r"--min-matched '-1' is not a number from 0 to 1"),
    "not a number": (dict(min_matched=float("nan")), r"--min-matched 'nan' is not"),
    "size 0": (dict(size=[800, 0]), r"--size '0' is not a finite number greater than 0"),
    "infinite length": (dict(minutes=float("inf")), r"--minutes 'inf' is not a finite number greater than 0"),
    "length that is not a number": (dict(minutes=float("nan")), r"--minutes 'nan' is not a finite number greater than 0"),
    "option without value": (dict(cfg_options=["a.b"]), r"--cfg-options 'a\.b' is not of the form KEY=VALUE"),
    "gpu": (dict(device="gpu"), r"--device 'gpu' is not a device; did you mean 'cuda'\?"),
    "no such device": (dict(device="tpu"), r"--device 'tpu' is not a device; devices are cpu, cuda"),
    "device index": (dict(device="cuda:first"), r"a whole number must follow the colon, as in 'cuda:0'"),
    "no launcher": (dict(launcher="pytorch"), r"--launcher 'pytorch': .* RANK is not set; start the tool with `torchrun`"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes(mistake, files, monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    (files / "coco.txt").touch()
    given, message = MISTAKES[mistake]
    filled = json.loads(json.dumps(given, default=str).replace("{0}", str(files)))
    with pytest.raises((ValueError, OSError), match=message):
        options.check(argparse.Namespace(**filled))


def test_a_link_to_nothing_is_no_folder(tmp_path):
    """As a run folder on a disk that is not mounted: it exists for ``mkdir``, and nothing can be written into it."""
    (tmp_path / "runs").symlink_to(tmp_path / "unmounted")
    with pytest.raises(NotADirectoryError, match=r"--work-dir '.*' cannot be written: '.*/runs' is not a folder"):
        options.check(argparse.Namespace(work_dir=str(tmp_path / "runs" / "first")))


def test_what_is_right_passes(files, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    right = [
        dict(config=f"{files}/config.py", checkpoint=f"{files}/weights.pth", device="cpu", score_thr=0.5, launcher="pytorch"),
        dict(config="mask_rcnn_hylisanet_s_1x_coco.py", checkpoint="none", resume="auto", device=None, out_dir=f"{files}/new/a"),
        dict(config=f"{files}/config.json", checkpoint="https://host/a.pth", device="cpu:0", json=f"{files}/new/a.json"),
        dict(checkpoint="timm:swin_tiny", images=[f"{files}/folder"], cfg_options=["a.b=c=d"], size=(1, 2), launcher="none"),
    ]  # fmt: skip
    for each in right:
        options.check(argparse.Namespace(**each))


@pytest.mark.parametrize(("devices", "name", "message"), [
    (0, "cuda", "no NVIDIA GPU, or no driver, was found; use '--device cpu'"),
    (2, "cuda:2", "this machine has 2 GPUs, 'cuda:0' to 'cuda:1'"),
    (2, "cuda:1", None),
    (None, "cuda:7", None),
])  # fmt: skip
def test_gpus(monkeypatch, devices, name, message):
    monkeypatch.setattr(options, "count_cuda_devices", lambda: devices)
    if message is None:
        options.check_device("--device", name)
    else:
        with pytest.raises(ValueError, match=message):
            options.check_device("--device", name)


@pytest.mark.parametrize(("devices", "package", "refused"), [
    (0, None, True), (1, None, False), (None, None, False), (0, "torch_npu", False),
])  # fmt: skip
def test_mixed_precision_needs_an_accelerator(monkeypatch, devices, package, refused):
    monkeypatch.setattr(options, "count_cuda_devices", lambda: devices)
    monkeypatch.setattr(options, "find_spec", lambda name: name == package)
    options.check(argparse.Namespace(amp=False))
    if refused:
        with pytest.raises(ValueError, match="--amp: no NVIDIA GPU, or no driver, was found; train without --amp"):
            options.check(argparse.Namespace(amp=True))
    else:
        options.check(argparse.Namespace(amp=True))


def test_the_number_of_gpus_is_pytorchs():
    import torch

    assert options.count_cuda_devices() in (torch.cuda.device_count(), None)


@pytest.mark.skipif(sys.platform != "linux", reason="a stand-in of the driver is compiled")
def test_devices_are_counted_in_another_process(monkeypatch, tmp_path):
    """The driver reads CUDA_VISIBLE_DEVICES at its first call, and that is chosen later."""
    source, library = tmp_path / "cuda.c", tmp_path / "libcuda.so.1"
    source.write_text(
        f'#include <stdio.h>\n#include <unistd.h>\nint cuInit(int flags) {{ FILE *f = fopen("{tmp_path}/pid", "w"); '
        'fprintf(f, "%d", getpid()); fclose(f); return 0; }\nint cuDeviceGetCount(int *n) { *n = 3; return 0; }\n'
    )
    if shutil.which("cc") is None:
        pytest.skip("no compiler")
    subprocess.run(["cc", "-shared", "-fPIC", source, "-o", library], check=True)
    whole = ctypes.CDLL
    monkeypatch.setattr(options.ctypes, "CDLL", lambda name: whole(str(tmp_path / name)))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    assert options.count_cuda_devices() == 3
    assert int((tmp_path / "pid").read_text()) != os.getpid()


def test_a_home_folder_is_written_out(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    args = argparse.Namespace(work_dir="~/runs", images=["~", "~/a"], device="cpu", config=None)
    (tmp_path / "a").mkdir()
    options.check(args)
    assert args.work_dir == str(tmp_path / "runs")
    assert args.images == [str(tmp_path), str(tmp_path / "a")]


def test_ranks(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    assert options.rank("none") == 0, "a variable that another program left is not a launcher"
    assert options.rank("pytorch") == 1
    monkeypatch.setenv("RANK", "x")
    assert options.rank("none") == 0
    with pytest.raises(ValueError, match="RANK='x' in the environment is not a whole number"):
        options.rank("pytorch")


@pytest.mark.parametrize(
    ("launcher", "before", "local_rank"),
    [("mpi", None, "3"), ("mpi", "2", "2"), ("pytorch", None, "1"), ("none", None, "1")],
)
def test_the_gpu_of_a_process_is_the_launchers(monkeypatch, launcher, before, local_rank):
    monkeypatch.setenv("LOCAL_RANK", before or "")
    if before is None:
        monkeypatch.delenv("LOCAL_RANK")
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_RANK", "3")
    options.set_local_rank(launcher, 1)
    assert os.environ["LOCAL_RANK"] == local_rank


def test_mistakes_import_no_library(files):
    """Each tool that takes a config, in one process."""
    script = f"""
import runpy, sys
from mmlisa import cli
sys.path.insert(0, str(cli.tools_folder()))
lines = {{
    "train": ["nosuch.py"], "test": ["nosuch.py", "nosuch.pth"], "infer": ["nosuch.py", "none.pth", "x.jpg"],
    "check-data": ["nosuch.py"], "export": ["nosuch.py", "none", "x.onnx"], "flops": ["nosuch.py"],
}}
for name, words in lines.items():
    sys.argv = [name, *words]
    try:
        runpy.run_path(str(cli.commands()[name]), run_name="__main__")
    except SystemExit as end:
        assert end.code == 2, name
    heavy = {{"torch", "mmengine", "cv2", "numpy"}} & set(sys.modules)
    assert not heavy, (name, heavy)
sys.argv = ["train", {str(files / "config.py")!r}, "--cfg-options", "modle.backbone=1"]
try:
    runpy.run_path(str(cli.commands()["train"]), run_name="__main__")
except SystemExit as end:
    assert end.code == 2
assert not {{"torch", "cv2", "mmcv", "mmdet"}} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=files)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("error: ") == 7
    assert "did you mean model.backbone" in done.stderr


def test_every_tool_is_checked(monkeypatch, capsys):
    """The checks run wherever a tool runs."""
    args = argparse.Namespace(debug=False, verbose=False, device="gpu")
    with pytest.raises(SystemExit, match="2"):
        cli.run(lambda args: pytest.fail("the tool ran"), args)
    assert "did you mean 'cuda'?" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission(tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(PermissionError, match="no permission to write into"):
        options.check_folder("--work-dir", tmp_path / "locked" / "run")


@pytest.mark.parametrize(
    ("before", "name", "visible"),
    [
        (None, "cpu", "-1"),
        (None, "cuda", "0"),
        (None, "cuda:1", "1"),
        ("", "cuda", "0"),
        ("3", "cpu", "-1"),
        ("3", "cuda", "3"),
        ("2, 3", "cuda:1", "3"),
        ("GPU-5ebe,GPU-77aa", "cuda:0", "GPU-5ebe"),
    ],
)
def test_a_device_is_one_that_the_environment_shows(monkeypatch, before, name, visible):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if before is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", before)
    options.select_device(name)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == visible


@pytest.mark.parametrize("name", ["epochs", "minutes", "batch"])
def test_lengths_are_positive(name):
    with pytest.raises(ValueError, match=f"--{name} '0' is not a finite number greater than 0"):
        options.check(argparse.Namespace(**{name: 0}))
