"""Every config trains with the recipe that its paper states in ``tests/helpers/recipes/papers.yml``."""

import re
import warnings
from pathlib import Path
from typing import Any

import pytest
from mmengine.config import Config

from helpers.recipes import recipe, stated
from mmlisa import config_path
from mmlisa.training.names import warn_of_names
from research.paper_tables import build_on_meta

CONFIGS = Path(__file__).parents[2] / "configs"
RECIPES = stated()
PATHS = sorted(path for path in CONFIGS.rglob("*.py") if "_base_" not in path.parts)
ABLATIONS = [path.stem for path in PATHS if path.parent.name == "ablations" and "../imagenet/" in path.read_text()]
# All see RGB images, normalised as ImageNet's; they average no weights, have one rate for all layers and heads that start like
# other layers unless a paper says so.
COMMON = dict(
    pixels=["RGB", 123.675, 116.28, 103.53, 58.395, 57.12, 57.375],
    **dict(ema=None, mesa=None, teacher=None, batch_scales=None, lr_mults={}, head_scale=1.0),
)
MOMENTA = {"SGD": 0.9, "AdamW": (0.9, 0.999), "mmlisa.Lamb": (0.9, 0.999)}
# Castling-ViT, Table 2: millions of parameters of the hosts themselves, here with two heads, and the difference allowed for them.
HOSTS = {"levit_256": (18.9, 0.03), "deit_t": (5.6, 0.06), "mvitv2_t": (24.0, 0.02)}


def end_error(expected: dict[str, Any]) -> float:
    """What a decay still has to go, over the rate, where MMEngine's schedulers end: a step early, some after 20 of 30 epochs."""
    steps = expected.get("epochs") or expected["iterations"] // 100
    return {"CosineAnnealingLR": 7 / steps**2, "PolyLR": 2 / steps**0.9}.get(expected["decay"], 0.0)


@pytest.mark.parametrize("name", RECIPES)
def test_recipe(name):
    expected = {**COMMON, "momenta": MOMENTA[RECIPES[name]["optimizer"]], **RECIPES[name]}
    if "rates" in expected:
        first, warm, last = expected["rates"]
        last = pytest.approx(last, rel=0.02, abs=expected["lr"] * end_error(expected))
        expected["rates"] = [first, pytest.approx(warm, rel=2e-3), last]
    resolved = recipe(Config.fromfile(config_path(name)), build_on_meta(name))
    assert {key: resolved.get(key) for key in expected} == expected


@pytest.mark.parametrize("name", ABLATIONS)
def test_an_ablation_is_a_delta_of_the_backbone(name):
    """tests/research/test_paper_tables.py compares its parameters with the paper's."""
    path = Path(config_path(name))
    base = re.search(r'_base_ = "\.\./imagenet/(.+)"', path.read_text())[1]
    configs = [Config.fromfile(each) for each in (path, path.parents[1] / "imagenet" / base)]
    for cfg in configs:
        for key in ("arch", "attention", "attn_type"):
            cfg.model.backbone.pop(key, None)
        for head in {"head", "distill_head"} & cfg.model.keys():
            cfg.model[head].pop("in_channels")
        cfg.custom_hooks = [hook for hook in cfg.custom_hooks if hook.type != "mmlisa.CastlingHook"]
    assert configs[0].to_dict() == configs[1].to_dict()
    parameters = sum(p.numel() for p in build_on_meta(name).parameters()) / 1e6
    if millions := HOSTS.get(name.removeprefix("classifier_").removesuffix("_distilled_1000e_imagenet")):
        assert parameters == pytest.approx(millions[0], rel=millions[1])


def test_every_config_of_a_paper_is_in_a_table():
    # tests/configs/test_library_recipes.py compares those of a library with the library's own.
    librarys = {path.stem for path in PATHS if "'s recipe with another backbone" in path.read_text()}
    known = {*RECIPES, *ABLATIONS, *librarys}
    assert not [path.stem for path in PATHS if path.stem not in known and not path.stem.endswith("_demo")]


@pytest.mark.parametrize("name", [path.stem for path in PATHS if path.stem.endswith("_demo")])
def test_the_model_builds(name):
    assert all(p.is_meta for p in build_on_meta(name).backbone.parameters())


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_every_config_has_the_hooks_of_the_runtime_and_no_name_that_nothing_reads(path):
    """A config whose base is a library's replaces ``custom_hooks``, and has to name them itself."""
    cfg = Config.fromfile(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_names(path, cfg, cfg.text)
    shared = [hook.type for hook in Config.fromfile(CONFIGS / "_base_" / "default_runtime.py").custom_hooks]
    assert "mmlisa.FiniteLossHook" in shared
    found = [hook.type for hook in cfg.custom_hooks]
    assert [kind for kind in found if kind in shared] == shared
    assert len(found) == len(set(found))


@pytest.mark.parametrize(
    "path",
    [path for path in PATHS if "pretrained_by" in path.read_text() and "video" not in path.parts],
    ids=lambda path: path.stem,
)
def test_pretrained_by_names_the_classifier_of_the_same_backbone(path):
    """Only tables of positions and kernels of another grid, and the norms of maps, differ."""
    theirs, ours = (
        dict(build_on_meta(model).backbone.named_parameters())
        for model in (Config.fromfile(path).pretrained_by, path.name)
    )
    assert not [name for name in ours.keys() ^ theirs.keys() if not re.match(r"norm\d\.|stages\.3\.norm\.", name)]
    assert all(p.ndim == theirs[name].ndim for name, p in ours.items() if name in theirs)


def test_every_downstream_accuracy_of_a_paper_names_what_it_starts_from():
    """Castling-ViT's Table 4 is from random weights, its Tables 5 to 7 "from scratch"."""
    quoting = [path for path in PATHS if re.search(r"^#.* paper has .*(AP|mIoU) \d", path.read_text())]
    cfgs = {path: Config.fromfile(path) for path in quoting}
    assert not [
        path.name
        for path, cfg in cfgs.items()
        if "pretrained_by" not in cfg
        and "init_cfg" not in cfg.model.backbone
        and not re.search("from scratch|from\\s(# )?random weights", path.read_text())
        and "ablations" not in path.parts
    ]


def test_every_config_is_found_by_its_name():
    for names in ([path.name for path in PATHS], [path.stem for path in PATHS]):
        assert [config_path(name) for name in names] == [str(path) for path in PATHS]
