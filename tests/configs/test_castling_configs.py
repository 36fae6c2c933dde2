"""What Castling's configs must agree on beyond their recipes: thresholds, starting points, distillation."""

from pathlib import Path

import pytest
import torch
from mmengine.config import Config

from mmlisa import config_path
from mmlisa.models.attention import castling_operators
from mmlisa.registry import MODELS
from mmlisa.training.recipes import CastlingHook
from research.paper_tables import build_on_meta

CONFIGS = Path(__file__).parents[2] / "configs"
NAMES = sorted(path.name for path in CONFIGS.rglob("*castling*.py") if "_base_" not in path.parts)


def smallest_image(cfg: Config) -> int:
    """Side of the smallest image that the backbone sees in training."""
    augments = cfg.model.data_preprocessor.get("batch_augments") or []
    if any("random_size_range" in a for a in augments):
        return min(a.random_size_range[0] for a in augments)
    dataset = cfg.train_dataloader.dataset
    pipeline = dataset.get("dataset", dataset).pipeline[::-1]
    size = next(step[key] for key in ("crop_size", "scale") for step in pipeline if key in step)
    return size if isinstance(size, int) else min(size)


@pytest.mark.parametrize(
    "path", sorted({*CONFIGS.glob("**/*lcnet_vit*.py"), *CONFIGS.glob("**/*_lin*.py")}), ids=lambda path: path.stem
)
def test_a_training_that_casts_no_branch_off_has_none(path):
    """The archs have the auxiliary branch; without a CastlingHook, a test would drop it all at once."""
    backbone = Config.fromfile(path).model.backbone
    operators = castling_operators(MODELS.build({**backbone, "init_cfg": None}))
    assert not operators, f"the auxiliary branch is trained in {sorted(operators)}"


@pytest.mark.parametrize("name", [name for name in NAMES if "distilled" not in name])
def test_the_threshold_empties_every_mask_while_the_rate_is_large(name):
    """A row of N tokens has a probability of at least 1 / N: below 1 / 0.02 tokens, 0.02 lets something through for ever."""
    cfg = Config.fromfile(config_path(name))
    backbone = build_on_meta(name).backbone.train()
    side = smallest_image(cfg)
    with torch.device("meta"):
        backbone(torch.empty(2, 3, side, side))
    tokens = min((each.mask_size / each.num_heads) ** 0.5 for each in castling_operators(backbone).values())
    (options,) = (hook for hook in cfg.custom_hooks if "CastlingHook" in hook.type)
    hook = CastlingHook(**{key: value for key, value in options.items() if key != "type"})
    if tokens < 1 / hook.threshold(0):
        assert hook.schedule == "linear"
        assert hook.begin <= 0.3
        assert hook.threshold(1) >= 1


@pytest.mark.parametrize("name", [name for name in NAMES if "distilled" in name])
def test_distillation_is_a_delta(name):
    """LeViT and DeiT learn from the teacher through a second head, MViTv2 through its only one; nothing else differs."""
    names = (name.replace("distilled_", ""), name)
    plain, distilled = ({n: p.shape for n, p in build_on_meta(n).named_parameters()} for n in names)
    second = {f"distill_{key}": shape for key, shape in plain.items() if key.startswith("head.fc.")}
    assert distilled == plain | ({} if "mvitv2" in name else second)
    hooks = [Config.fromfile(config_path(n)).custom_hooks for n in names]
    assert hooks[0] == hooks[1]
