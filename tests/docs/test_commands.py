"""Every shell command of README and the documentation is run as written, and leaves the files that its page promises.

Each page has a folder of its own with what a clone holds (configs, docs, tools), the files that the page has its reader write,
and small demo data. Trainings are shortened by options that are appended (:data:`SHORTER`); what they leave also gets the name
that the whole training would have given it, so a page that names another checkpoint fails. What is not run is in :data:`NOT_RUN`.
"""

import argparse
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest
import timm
import torch
from mmengine.registry import MODELS, DefaultScope
from mmengine.utils import ManagerMixin

from helpers.pages import FENCE, PAGES, ROOT, commands, name_of, read_blocks
from helpers.rectangles import draw
from mmlisa import cli
from mmlisa.datasets.demo import make_demo
from mmlisa.training.config import load_config, parse_options
from mmlisa.video.demo import make_video_demo

pytestmark = pytest.mark.slow

# --- data --------------------------------------------------------------------------------------------------------------------

_INSTALLS = "installs packages; .ci/run, .ci/release and .ci/versions install in each of these ways"
_DOWNLOADS = "downloads packages"
_SUITE = "is a part of this suite"
_GPUS = "needs several GPUs; tests/tools/test_distributed.py trains in two processes"
_LONG = "measures for minutes to hours"
# How a command begins, with a space where it ends there, and why no command that begins like this is run.
NOT_RUN = {
    "pip install": _INSTALLS,
    "uv sync": _INSTALLS,
    "uv pip install": _INSTALLS,
    "MMCV_WITH_OPS=1 pip install": "compiles for a quarter of an hour",
    "conda": "conda is on no test machine",
    "python -m venv": _INSTALLS,
    ". .venv/bin/activate": _INSTALLS,
    "uvx labelme2coco": _DOWNLOADS,
    "apt-get install": "installs packages of the system",
    "python -m mmlisa.mmcv_ops install": "changes the environment; tests/mmcv_ops/test_activation.py",
    "python -m mmlisa.mmcv_ops uninstall": "changes the environment; tests/mmcv_ops/test_activation.py",
    "uv run pytest": _SUITE,
    "pytest": _SUITE,
    "python -m pytest": _SUITE,
    "PYTHONPATH=. pytest": "tests/docs/test_worked_examples.py",
    "PYTHONPATH=tools uv run lint-imports": "CI runs it: .ci/run",
    "uv run mutmut": "runs tests once per changed line",
    "uv run ruff": "CI runs it: .ci/run",
    "uv run mkdocs build": "tests/docs/test_site.py",
    "uv run mkdocs serve": "a server, which does not end",
    "mmlisa demo-page": "a server, which does not end; tests/tools/test_demo_page.py",
    "tensorboard": "a server, which does not end, and no dependency",
    "bash .ci/release": "builds an environment; the workflow release.yml runs it",
    "bash tests/wheel.sh": "builds an environment; .ci/release runs it",
    "bash .ci/versions": "builds an environment; the workflow test.yml runs it",
    "mmlisa convert data/mask_rcnn_mila": "needs the authors' file; tests/conversion/test_newer_families.py",
    "torchrun --nproc_per_node 8": _GPUS,
    "torchrun --nnodes": _GPUS,
    "srun": "needs a cluster",
    "mmlisa fit": "trains for minutes; tests/fit",
    "mmlisa train CONFIG --amp": "needs a GPU",
    **({} if find_spec("peft") else {"PYTHONPATH=. mmlisa train helmets_lora.py": "needs peft"}),
    "python tools/compare.py": f"{_LONG}; tests/research/test_comparison.py",
    "python tools/benchmark.py": f"{_LONG}; tests/research/test_benchmark.py",
    "python -X importtime": "a measurement",
    "mmlisa infer CONFIG CHECKPOINT IMAGE --tile": "a mention; tests/deploy/test_inference.py",
    "mmlisa infer model.onnx IMAGE --tile": "a mention; tests/deploy/test_inference.py",
    "python tools/paper_tables.py": "counts for half a minute; tests/research/test_paper_tables.py",
    "python tools/model_zoo.py": "counts every config, for minutes; tests/research/test_model_zoo.py",
    "python tools/published_weights.py": "builds every backbone, for minutes; tests/conversion/test_published.py",
    "python tools/demo_data.py": "makes the demo data in full; tests/datasets/test_demo.py",
    "uv run COMMAND": "stands for any",
    "python voc_to_coco.py": "the other way to what yolo_to_coco.py leaves; tests/docs/test_worked_examples.py",
    "mmlisa convert timm:": "downloads weights; tests/conversion/test_published.py",
    "python tools/test.py configs/imagenet": "needs ImageNet",
    "python tools/test.py configs/mask_rcnn_mila": "needs COCO and the authors' file",
    "uv run tools/train.py configs/NAME_demo.py": "stands for a command per row of its table, of which some are run",
    "tools/test.py CONFIG CHECKPOINT --tta": "a mention; docs/first_hour.md has the command",
}
# Tools that a sentence names without their arguments.
MENTIONS = ("mmlisa demo-data", "mmlisa export", "mmlisa infer", "mmlisa test")
# Whole commands that end as their page says: with a message, and 2 as the exit code.
ENDS_WITH = {
    f"mmlisa check-data {config} --split val": rf"error: .*data/{folder}.* does not exist.*val_dataloader\.dataset"
    for config, folder in {
        "mask_rcnn_flatten_swin_t_1x_coco.py": "coco",
        "upernet_flatten_swin_t_160k_ade20k.py": "ade",
        "classifier_ivit_t_300e_imagenet.py": "imagenet",
    }.items()
} | {"mmlisa test CONFIG CHECKPOINT --tta": "error: --tta: .* this model has masks"}

ITERATIONS = 2
_HELMETS = [
    "model.train_cfg.rcnn.sampler.num=32",
    "model.train_cfg.rpn_proposal.max_per_img=50",
    "model.test_cfg.rcnn.max_per_img=5",
    "train_dataloader.dataset.pipeline.2.scale=(96,64)",
    *(f"{split}_dataloader.dataset.pipeline.1.scale=(96,64)" for split in ("val", "test")),
    *(f"{split}_dataloader.num_workers=0" for split in ("train", "val", "test")),
]
# Beside the length, by config. A network of two iterations is sure of nothing, and nothing found is no metric.
SHORTER = {
    "retinanet_flatten_swin_demo.py": ["model.test_cfg.score_thr=0"],
    "helmets.py": ["model.backbone.init_cfg=None", *_HELMETS],
    "helmets_lora.py": ["model.backbone.backbone.init_cfg=None", *_HELMETS],
}


def bring_yolo(folder: Path) -> None:
    """Ten small pictures with rectangles of two classes, as YOLO's polygons."""
    (folder / "yolo" / "labels").mkdir(parents=True)
    for number, (name, corners, _) in enumerate(draw(folder / "yolo" / "images", 10)):
        line = f"{number % 2} " + " ".join(f"{value:.6f}" for value in corners.flatten())
        (folder / "yolo" / "labels" / f"{name}.txt").write_text(line + "\n")
    (folder / "yolo" / "data.yaml").write_text("names: [helmet, vest]\nnc: 2\n")


def bring_timm(model: str, name: str) -> Callable[[Path], None]:
    """A published file of timm's, with random weights."""
    return lambda folder: torch.save(timm.create_model(model).state_dict(), folder / name)


def bring_classifier(folder: Path) -> None:
    """A checkpoint of the image classifier that the video's is inflated from."""
    with DefaultScope.overwrite_default_scope("mmpretrain"):
        model = MODELS.build(load_config("imagenet/classifier_hylisanet_s_300e_imagenet.py").model)
    torch.save({"state_dict": model.state_dict()}, folder / "IMAGE.pth")


class Reader(NamedTuple):
    """What the reader of a page finds in the end, had before, and puts in place of words in capitals."""

    finds: Sequence[str] = ()  # patterns of files, none of them empty
    brings: Callable[[Path], None] | None = None
    before: Sequence[str] = ()  # commands of earlier pages
    words: Mapping[str, str] = {"CONFIG": "classifier_hylisanet_demo.py"}


_DEMO = "work_dirs/mask_rcnn_hylisanet_demo/iter_400.pth"
_TRAINED = {
    "CONFIG": "mask_rcnn_hylisanet_demo.py",
    "CHECKPOINT": _DEMO,
    "IMAGE": "data/demo/val/000000000006.jpg",
}
_TRAIN = ("tools/train.py configs/mask_rcnn_hylisanet_demo.py",)
_CLASSIFIER = {
    "CONFIG": "classifier_hylisanet_demo.py",
    "CHECKPOINT": "work_dirs/classifier_hylisanet_demo/iter_400.pth",
}
_LOGS = ("*/curves.png", "*/vis_data/vis_image/*.png")
READERS = {
    "README.md": Reader([_DEMO, "work_dirs/infer/*.png"]),
    "CONTRIBUTING.md": Reader(["pictures/coffee.png", "pictures/000000000006.png", "docs/images/overview.png"]),
    "docs/add_host.md": Reader(["work_dirs/small_pyramid_demo/iter_400.pth"]),
    "docs/add_operator.md": Reader(["work_dirs/elu_demo/iter_400.pth"]),
    "docs/export.md": Reader(
        ["model.onnx", "work_dirs/infer/*.png"],
        before=("mmlisa train classifier_hylisanet_demo.py",),
        words={**_CLASSIFIER, "IMAGE": "data/demo/val/000000000006.jpg"},
    ),
    "docs/finetune.md": Reader(
        [
            *(f"work_dirs/{name}/epoch_24.pth" for name in ("helmets", "frozen", "decayed")),
            "work_dirs/helmets/*/curves.png",
            "work_dirs/helmets/confusion.*",
            "work_dirs/infer/*.png",
            "work_dirs/browse.jpg",
        ],
        bring_yolo,
    ),
    "docs/first_hour.md": Reader(
        [
            *(f"work_dirs/mask_rcnn_hylisanet_demo/{name}" for name in ("iter_400.pth", "*/*.log", *_LOGS)),
            *("first/iter_100.pth", "work_dirs/first/iter_400.pth", "work_dirs/wider/iter_400.pth"),
            *("work_dirs/infer/*.png", "DIR/*.png", "predictions.pkl"),
            *("work_dirs/visualize/kernels.png", "model.onnx"),
        ],
        words={**_TRAINED, "KEY=VALUE": "optim_wrapper.optimizer.lr=1e-3", "FILE": "predictions"},
    ),
    "docs/flatten.md": Reader(
        ["flatten_swin_t_in1k.pth"], bring_timm("swin_tiny_patch4_window7_224", "flatten_swin_t.pth")
    ),
    "docs/heads.md": Reader(
        [f"work_dirs/{name}_demo/iter_400.pth" for name in ("retinanet_flatten_swin", "dino_ivit")]
    ),
    "docs/ivit.md": Reader(["ivit_t_start.pth"], bring_timm("caformer_s18", "caformer_s18.pth")),
    "docs/lisa.md": Reader(
        ["work_dirs/visualize/kernels.png"],
        bring_classifier,
        words={**_TRAINED, "CONFIG": "imagenet/classifier_hylisanet_s_300e_imagenet.py", "CHECKPOINT": "IMAGE.pth"},
    ),
    "docs/multi_gpu.md": Reader(["two/iter_4.pth"]),
    "docs/pictures.md": Reader(
        [
            *("drawn/*.png", "predictions.json", "curves.png"),
            *(f"work_dirs/visualize/{name}.png" for name in ("kernels", "matrices")),
        ],
        before=_TRAIN,
        words={**_TRAINED, "DIR": "drawn", "FILE": "predictions.json", "WORK_DIR": str(Path(_DEMO).parent)},
    ),
    "docs/published_weights.md": Reader(
        ["start.pth"],
        bring_timm("swin_tiny_patch4_window7_224", "swin.pth"),
        words={"SRC": "swin.pth", "DST": "start.pth", "BACKBONE": "FLattenSwin", "ARCH": "tiny"},
    ),
    "docs/video.md": Reader(
        [
            *("work_dirs/hylisanet_s_inflated.pth", "work_dirs/video_hylisanet_demo/iter_500.pth"),
            "work_dirs/infer/turn_left_000.*",
        ],
        bring_classifier,
    ),
}

# --- running -----------------------------------------------------------------------------------------------------------------


def page_commands(page: Path) -> Iterator[list[list[str]]]:
    """The commands of each block of a page, then those of its text: a program and what follows it, in one piece of code."""
    for block in read_blocks(page):
        yield list(commands([block]))
    programs = "uv|uvx|pip|conda|bash|pytest|python|mmlisa|torchrun|srun|tensorboard|apt-get"
    for code in re.findall(r"`([^`]+)`", FENCE.sub("", page.read_text(encoding="utf-8"))):
        if re.match(rf"(({programs}) |tools/\w+\.py )", code) and "…" not in code and code != "uv run":
            yield [shlex.split(code)]


def reason_not_to_run(words: Sequence[str]) -> str | None:
    known = next((begin for begin in NOT_RUN if " ".join([*words, ""]).startswith(begin)), None)
    return known or ("a mention" if shlex.join(words) in MENTIONS else None)


def run(words: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """Runs a command in the current folder, shortened, Python in this process; gives its exit code."""
    if words[0] == "cd":
        os.chdir(words[1])
        return 0
    with monkeypatch.context() as shell:
        while re.match(r"\w+=", words[0]):
            name, _, value = words[0].partition("=")
            if name == "PYTHONPATH":
                shell.syspath_prepend(Path(value).resolve())
            shell.setenv(name, value)
            words = words[1:]
        if words[:2] == ["uv", "run"]:
            words = words[2:]
        code = execute(shorten(words), shell)
        if not code:
            name_checkpoint(words)
    return code


def forget(kind: type = ManagerMixin) -> None:
    """Drops what MMEngine keeps by name: loggers, visualizers, scopes; each command has a process of its own elsewhere."""
    for one in kind.__subclasses__():
        one._instance_dict.clear()
        forget(one)


def execute(words: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    forget()
    if words[0] == "torchrun":
        command = [sys.executable, "-m", "torch.distributed.run", *words[1:]]
        return subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}).returncode
    if words[0] == "python":
        words = words[1:]
    program, *rest = words
    monkeypatch.setattr(sys, "argv", [program, *rest])
    try:
        if program == "mmlisa":
            cli.main(rest)
        elif program == "-c":
            exec(compile(rest[0], "-c", "exec"), {"__name__": "__main__"})
        elif program == "-m":
            sys.argv = rest
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(program, run_name="__main__")
    except SystemExit as end:
        return end.code or 0
    return 0


def split_tool(words: Sequence[str]) -> tuple[str, list[str]]:
    """The tool of ``mmlisa TOOL …`` or ``tools/TOOL.py …``, and its arguments; '' for other commands."""
    for index, word in enumerate(words):
        if index and words[index - 1] == "mmlisa":
            return word, list(words[index + 1 :])
        if match := re.fullmatch(r"tools/(\w+)\.py", word):
            return match[1], list(words[index + 1 :])
    return "", []


def shorten(words: list[str]) -> list[str]:
    """Two iterations for a training; small pictures for the configs that want large ones."""
    tool, arguments = split_tool(words)
    if tool not in ("train", "test", "infer") or "torchrun" in words:
        return words
    options = SHORTER.get(Path(arguments[0]).name, [])
    if tool == "train":
        if "max_epochs" in load_config(arguments[0]).train_cfg:
            options = ["train_cfg.max_epochs=1", *options]
        else:
            iterations = ITERATIONS + ("--resume" in words)
            options = [f"train_cfg.{name}={iterations}" for name in ("max_iters", "val_interval")] + options
            options += ["train_dataloader.batch_size=2", "val_dataloader.dataset.indices=2"]
    return [*words, "--cfg-options", *options] if options else words


def name_checkpoint(words: Sequence[str]) -> None:
    """Gives the checkpoint of a shortened training the name that it would have had."""
    tool, arguments = split_tool(words)
    if tool != "train" or "torchrun" in words:
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("config")
    parser.add_argument("--work-dir")
    parser.add_argument("--cfg-options", nargs="+", default=[])
    args, _ = parser.parse_known_args(arguments)
    cfg = load_config(args.config, options=parse_options(args.cfg_options), work_dir=args.work_dir)
    folder, length = Path(cfg.work_dir), cfg.train_cfg
    name = f"epoch_{length.max_epochs}" if "max_epochs" in length else f"iter_{length.max_iters}"
    shutil.copy((folder / "last_checkpoint").read_text().strip(), folder / f"{name}.pth")


@pytest.fixture(scope="module")
def demo_data(tmp_path_factory) -> Path:
    """A few images and clips of the demo data, which the demo configs take as they find them."""
    folder = tmp_path_factory.mktemp("data")
    make_demo(folder / "demo", num_images={"train": 16, "val": 8}, progress=False)
    make_video_demo(folder / "demo_video", num_scenes={"train": 1, "val": 1}, progress=False)
    return folder


@pytest.fixture
def clone(tmp_path, demo_data, monkeypatch) -> Path:
    """What commands of a clone name, copied, since some write there; and the demo data, which do not have to be made again."""
    for name in ("configs", "docs", "tools"):
        shutil.copytree(ROOT / name, tmp_path / name)
    (tmp_path / "data").mkdir()
    for path in demo_data.iterdir():
        (tmp_path / "data" / path.name).symlink_to(path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


to_run = [page for page in PAGES if any(not reason_not_to_run(w) for block in page_commands(page) for w in block)]


@pytest.mark.parametrize("page", to_run, ids=name_of)
def test_commands_run(page, clone, monkeypatch, capfd):
    reader = READERS.get(name_of(page), Reader())
    for block in read_blocks(page):
        if block.title:
            (clone / block.title).write_text(block.code)
    if reader.brings:
        reader.brings(clone)
    blocks = [[shlex.split(command) for command in reader.before], *page_commands(page)]
    done = set()
    for block in blocks:
        for words in block:  # a shell of its own for each block
            typed = shlex.join(words)
            if typed in done or reason_not_to_run(words):
                continue
            done.add(typed)

            words = [re.sub(PLACEHOLDER, lambda match: reader.words.get(match[0], match[0]), word) for word in words]
            code = run(words, monkeypatch)
            printed = capfd.readouterr()
            message = ENDS_WITH.get(typed)
            assert code == (2 if message else 0), f"{typed}\n{printed.out[-2000:]}\n{printed.err}"
            if message:
                assert re.search(message, printed.err), printed.err
        monkeypatch.chdir(clone)
    for pattern in reader.finds:
        found = list(clone.glob(pattern))
        assert found, f"{name_of(page)} promises {pattern}"
        assert all(path.stat().st_size for path in found), found


PLACEHOLDER = re.compile(r"\b(KEY=VALUE|[A-Z][A-Z_]+)\b")


def test_what_is_not_run_is_on_a_page():
    typed = [words for page in PAGES for block in page_commands(page) for words in block]
    used = {reason_not_to_run(words) for words in typed}
    assert set(NOT_RUN) <= used, f"on no page any more: {set(NOT_RUN) - used}"
    assert set(ENDS_WITH) <= {shlex.join(words) for words in typed}
    assert set(READERS) <= {name_of(page) for page in to_run}
