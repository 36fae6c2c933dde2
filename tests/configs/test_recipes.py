"""Every config trains with the recipe that its paper states: one table per paper, ``recipes_<paper>.py``.

A table maps a config's name to what the paper says, in the words of :func:`recipes.recipe`; what it does not say is
left out.
"""

from importlib import import_module
from pathlib import Path

import pytest
from mmengine.config import Config
from recipes import recipe

from mmlisa.analysis.paper_tables import build_on_meta

HERE = Path(__file__).parent
CONFIGS = HERE.parents[1] / "configs"
RECIPES = {
    name: expected
    for table in sorted(HERE.glob("recipes_*.py"))
    for name, expected in import_module(table.stem).RECIPES.items()
}
NAMES = sorted(path.name for path in CONFIGS.glob("*.py"))


@pytest.mark.parametrize("name", RECIPES)
def test_recipe(name):
    resolved = recipe(Config.fromfile(CONFIGS / name))
    assert {key: resolved.get(key) for key in RECIPES[name]} == RECIPES[name]


def test_every_config_of_a_paper_is_in_a_table():
    missing = [name for name in NAMES if name not in RECIPES and not name.removesuffix(".py").endswith("_demo")]
    assert not missing


@pytest.mark.parametrize("name", NAMES)
def test_the_model_builds(name):
    model = build_on_meta(name)
    assert all(p.is_meta for p in model.parameters())
