"""No tool builds a model, and no dataset reads a file, in a way that runs code from the file."""

import ast
import os
import pickle
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from mmengine.config import Config
from mmengine.fileio import dump, load
from mmengine.fileio.handlers import PickleHandler, YamlHandler, file_handlers
from mmengine.model import BaseModel
from mmengine.registry import MODELS
from mmengine.runner import checkpoint as mmengine_checkpoint
from mmengine.runner import load_checkpoint
from mmengine.runner.checkpoint import CheckpointLoader

from mmlisa.checkpoints import CheckpointError
from mmlisa.training.building import build_model, guard_process

ROOT = Path(__file__).parents[2]


class Malicious:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


class Taught(BaseModel):
    """Reads a teacher's weights while it is built, as mmdet's distillation detectors do."""

    def __init__(self, teacher_ckpt, data_preprocessor=None):
        super().__init__()
        load_checkpoint(self, teacher_ckpt, map_location="cpu")

    def forward(self, *args):
        pass


@pytest.fixture
def unguarded(monkeypatch):
    """A process whose loaders are MMEngine's own."""
    monkeypatch.setenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "0")
    monkeypatch.setattr(CheckpointLoader, "_schemes", {})
    CheckpointLoader.register_scheme("", mmengine_checkpoint.load_from_local)
    for suffix, handler in {
        "pkl": PickleHandler,
        "pickle": PickleHandler,
        "yaml": YamlHandler,
        "yml": YamlHandler,
    }.items():
        monkeypatch.setitem(file_handlers, suffix, handler())
    monkeypatch.setitem(MODELS.module_dict, "Taught", Taught)


@pytest.fixture
def cfg(tmp_path, unguarded):
    torch.save({"state_dict": Malicious(tmp_path / "ran")}, tmp_path / "teacher.pth")
    model = dict(type="Taught", teacher_ckpt=str(tmp_path / "teacher.pth"))
    loader = dict(dataset=dict(pipeline=[dict(type="LoadImageFromFile")]))
    return Config(dict(model=model, test_dataloader=loader, default_scope="mmengine"))


def predictor(cfg):
    from mmlisa.deploy.inference import Predictor

    Predictor(cfg, "weights.pth")


def backbone(cfg):
    from figures.kernels import load_backbone

    load_backbone(cfg, None)


class Plain(BaseModel):
    def forward(self, *args):
        pass


def test_a_data_preprocessor_beside_the_model_is_the_models():
    """As mmpretrain's configs have it. MMEngine's runner passes it to a model that has none."""
    preprocessor = dict(type="ImgDataPreprocessor", mean=[1.0] * 3, std=[2.0] * 3)
    cfg = Config(dict(model=dict(type=Plain), data_preprocessor=preprocessor, default_scope="mmengine"))
    assert build_model(cfg).data_preprocessor.mean.flatten().tolist() == [1] * 3
    cfg.model.data_preprocessor = dict(preprocessor, mean=[3.0] * 3)
    assert build_model(cfg).data_preprocessor.mean.flatten().tolist() == [3] * 3


@pytest.mark.fault
@pytest.mark.parametrize("build", [build_model, predictor, backbone])
def test_a_teacher_runs_no_code(cfg, tmp_path, build):
    with pytest.raises(CheckpointError, match="could run code"):
        build(cfg)
    assert not (tmp_path / "ran").exists()


def test_the_teacher_of_this_test_would_run_code(cfg, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")  # MMEngine does so by itself after a warning
    with pytest.raises((AttributeError, TypeError, RuntimeError)):
        MODELS.build(cfg.model)
    assert (tmp_path / "ran").exists()


def test_no_other_place_builds_the_model_of_a_config():
    """``build(cfg.model)`` of a registry, anywhere in the package or the tools."""
    found = []
    for path in [*ROOT.glob("mmlisa/**/*.py"), *ROOT.glob("tools/*.py"), *ROOT.glob("tools/[!r]*/*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("MODELS.build"):
                found.append((str(path.relative_to(ROOT)), ast.unparse(node.args[0])))
    assert [place for place, argument in found if argument in ("cfg.model", "model", "backbone", "config.model")] == [
        "mmlisa/training/building.py"
    ]


@pytest.mark.fault
@pytest.mark.parametrize("suffix", ["pkl", "pickle", "yaml", "yml"])
def test_mmengines_file_loaders_run_no_code(unguarded, tmp_path, suffix):
    """Annotations, proposals and results: all of the three libraries read them through ``mmengine.fileio.load``."""
    path = tmp_path / f"bad.{suffix}"
    tag = f"!!python/object/apply:os.mkdir ['{tmp_path / 'ran'}']".encode()
    path.write_bytes(tag if suffix.startswith("y") else pickle.dumps(Malicious(tmp_path / "ran")))
    guard_process({})
    with pytest.raises(Exception, match=r"could run code|could not determine a constructor"):
        load(str(path))
    assert not (tmp_path / "ran").exists()
    if suffix.startswith("y"):
        dump({"a": [1]}, str(path))
        assert load(str(path)) == {"a": [1]}
    else:
        dump({"a": [1]}, str(path))
        assert pickle.loads(path.read_bytes()) == {"a": [1]}


@pytest.mark.parametrize(
    "part",
    [
        dict(type="OpenImagesChallengeDataset", hierarchy_file="x.npy"),
        dict(type="mmdet.OpenImagesChallengeDataset"),
        dict(type="mmpretrain.RAM"),
        dict(type=type("RAM", (), {})),  # new-style configs hold classes
        dict(type="LoadBiomedicalImageFromFile", decode_backend="pickle"),
    ],
)
def test_types_that_unpickle_by_themselves_are_refused(unguarded, part):
    with pytest.raises(ValueError, match="unpickle a file"):
        guard_process(Config(dict(train_dataloader=dict(dataset=dict(type="Repeat", dataset=dict(pipeline=[part]))))))
    guard_process(Config(dict(model=dict(type="ImageClassifier"), pipeline=[dict(type="LoadBiomedicalImageFromFile")])))


@pytest.mark.fault
@pytest.mark.parametrize("options", [{}, {"weights_only": False}])
def test_no_torch_load_runs_code(unguarded, tmp_path, monkeypatch, options):
    """As transformers, mmpretrain's retrievers and its quantiser read weights."""
    torch.save({"state_dict": Malicious(tmp_path / "ran")}, tmp_path / "x.pth")
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    guard_process({})
    with pytest.raises(pickle.UnpicklingError, match="Weights only"):
        torch.load(tmp_path / "x.pth", **options)
    assert not (tmp_path / "ran").exists()


@pytest.mark.fault
def test_the_queue_of_swav_runs_no_code(unguarded, tmp_path):
    hooks = pytest.importorskip("mmpretrain.engine.hooks")
    torch.save({"queue": Malicious(tmp_path / "ran")}, tmp_path / "queue.pth")
    guard_process({})
    with pytest.raises(pickle.UnpicklingError, match="Weights only"):
        hooks.SwAVHook(batch_size=1).before_run(SimpleNamespace(work_dir=str(tmp_path)))
    assert not (tmp_path / "ran").exists()


@pytest.mark.fault
@pytest.mark.parametrize("name", ["CIFAR10", "CIFAR100"])
def test_other_batches_than_the_published_run_no_code(tmp_path, name):
    dataset = getattr(pytest.importorskip("mmpretrain.datasets"), name)
    folder = tmp_path / dataset.base_folder
    folder.mkdir()
    for file in (*dict([*dataset.train_list, *dataset.test_list]), dataset.meta["filename"]):
        (folder / file).write_bytes(pickle.dumps(Malicious(tmp_path / "ran")))
    with pytest.raises(RuntimeError, match=f"Cannot find {name} dataset"):
        dataset(data_root=str(tmp_path), split="train", download=False)
    assert not (tmp_path / "ran").exists()


EXECUTED = "import os\nos.mkdir({path!r})\nmodel = dict()"


@pytest.mark.fault
@pytest.mark.parametrize("place", ["meta.cfg", "meta.config", "hub"])
def test_an_inferencer_runs_no_config_of_a_checkpoint(unguarded, tmp_path, place):
    pytest.importorskip("mmdet")
    from mmdet.apis import DetInferencer

    text = EXECUTED.format(path=str(tmp_path / "ran"))
    checkpoint = {"state_dict": {}, "meta": {"dataset_meta": {}}, "message_hub": {"runtime_info": {}}}
    part = checkpoint["message_hub"]["runtime_info"] if place == "hub" else checkpoint["meta"]
    part["config" if place == "meta.config" else "cfg"] = text
    torch.save(checkpoint, tmp_path / "x.pth")
    guard_process({})
    with pytest.raises(ValueError, match="Cannot find the config"):
        DetInferencer(weights=str(tmp_path / "x.pth"), device="cpu")
    assert not (tmp_path / "ran").exists()
