"""A file is the trained model of a config only if every part of it is there, and nothing else."""

from pathlib import Path
from typing import Any

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import DefaultScope
from torch import nn

from mmlisa.checkpoints import CheckpointError, compare, fresh_in_a_start, judge
from mmlisa.registry import MODELS
from research.paper_tables import build_on_meta

CONFIGS = Path(__file__).parents[2] / "configs"
PATHS = sorted(path for path in CONFIGS.rglob("*.py") if "_base_" not in path.parts)


# A demo of each kind of head is tested with each commit, the configs of the papers each night.
NIGHTLY = [path if path.stem.endswith("_demo") else pytest.param(path, marks=pytest.mark.nightly) for path in PATHS]
STEMS = [path.stem for path in PATHS]


def deepened(cfg: Config, backbone: nn.Module) -> nn.Module | None:
    """The same backbone with one block more in its deepest stage; None for hosts without such a number."""
    arch = getattr(backbone, "arch", {})
    changes: dict[str, Any] = {}
    if isinstance(arch.get("depths"), tuple):
        deepest = arch["depths"].index(max(arch["depths"]))
        changes["depths"] = tuple(depth + (stage == deepest) for stage, depth in enumerate(arch["depths"]))
    if isinstance(arch.get("depth"), int):
        changes["depth"] = arch["depth"] + 1
    if not changes:
        return None
    given = cfg.model.backbone.get("arch") or type(backbone).default_arch
    given = given if isinstance(given, dict) else {"base": given}
    with DefaultScope.overwrite_default_scope(cfg.default_scope), torch.device("meta"):
        return MODELS.build({**cfg.model.backbone, "init_cfg": None, "arch": {**given, **changes}})


def below(module: nn.Module, prefix: str) -> dict[str, torch.Tensor]:
    return {f"{prefix}.{name}": tensor for name, tensor in module.state_dict().items()}


@pytest.mark.parametrize("path", NIGHTLY, ids=STEMS)
def test_a_file_without_a_part_or_with_another_depth_is_refused(path):
    cfg, model = Config.fromfile(path), build_on_meta(path.stem)
    state = {name: tensor.to("meta") for name, tensor in model.state_dict().items()}
    judge(model, {"state_dict": state}, "whole.pth")
    for part in compare(model, state):
        rest = {name: tensor for name, tensor in state.items() if not f"{name}.".startswith(f"{part}.")}
        with pytest.raises(CheckpointError, match=part):
            judge(model, {"state_dict": rest}, "lacking.pth")
    start = {"state_dict": below(model.backbone, "backbone")}
    judge(model, start, "start.pth", fresh_in_a_start(model, start))
    if (other := deepened(cfg, model.backbone)) is None:
        return
    deeper = nn.ModuleDict({**dict(model.named_children()), "backbone": other})
    for ours, theirs in ((model, deeper), (deeper, model)):
        checkpoint = {"state_dict": theirs.state_dict()}
        for may_differ in ((), fresh_in_a_start(ours, checkpoint)):
            with pytest.raises(CheckpointError, match="backbone"):
                judge(ours, checkpoint, "other.pth", may_differ)


STARTS = [path for path in PATHS if "pretrained_by" in path.read_text() and "video" not in path.parts]


@pytest.mark.nightly
@pytest.mark.parametrize("path", STARTS, ids=lambda path: path.stem)
def test_a_config_starts_from_the_classifier_that_it_names(path):
    classifier, model = (build_on_meta(name) for name in (Config.fromfile(path).pretrained_by, path.stem))
    checkpoint = {"state_dict": classifier.state_dict(), "meta": {"backbone": classifier.backbone.settings()}}
    judge(model, checkpoint, "classifier.pth", fresh_in_a_start(model, checkpoint))
