"""Every code block of README and the documentation: Python is run, configs are built, commands are read by the tool they call."""

import importlib.util
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import DATASETS, HOOKS, MODELS, TRANSFORMS, WEIGHT_INITIALIZERS, DefaultScope, Registry

import mmlisa.registry
from helpers.pages import PAGES, ROOT, commands, name_of, read_blocks
from mmlisa import cli
from mmlisa.models import backbones
from mmlisa.models.attention import build_attention
from mmlisa.training.config import load_config

LANGUAGES = {"python", "bash", "text", "toml", "yaml", ""}  # the last: as text
# What other programs are called; only their names can be checked.
OTHERS = {
    ".",
    "cd",
    "uv",
    "uvx",
    "pip",
    "conda",
    "pytest",
    "mutmut",
    "ruff",
    "lint-imports",
    "mkdocs",
    "apt-get",
    "nvidia-smi",
}


with_blocks = pytest.mark.parametrize("page", [p for p in PAGES if read_blocks(p)], ids=name_of)


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """The reader's own folder, with the modules and configs that the page has them write."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@with_blocks
def test_every_block_says_its_language(page):
    assert {block.language for block in read_blocks(page)} <= LANGUAGES


@with_blocks
def test_python_runs_and_configs_build(page, folder):
    namespace: dict[str, Any] = {"_base_": Config.fromfile(ROOT / "configs" / "mask_rcnn_hylisanet_demo.py")}
    for block in read_blocks(page):
        if block.language != "python":
            continue
        if block.not_run:
            compile(block.code, name_of(page), "exec")
            continue
        if block.title is None:
            before = set(namespace)
            exec(compile(block.code, name_of(page), "exec"), namespace)
            for name in namespace.get("custom_imports", {}).get("imports", []):
                import_module(name)
            changed = {key for key in namespace if key not in before or key in block.code}
            for key in changed - {"_base_", "__builtins__"}:
                check_part(key, namespace[key])
            continue
        path = folder / block.title
        path.write_text(block.code)
        if "_base_ =" in block.code:
            check_config(path)
        else:
            import_module(path.stem)


def check_part(key: str, value: Any) -> None:
    """A part of a config: its types exist, its backbone can be built, and its neck fits."""
    if not isinstance(value, dict):
        return
    if key == "attention":
        with torch.device("meta"):
            build_attention(value, 32, 2, (7, 7))
        return
    for node in walk(value):
        name = str(node.get("type", ""))
        if name.startswith("mmlisa."):
            assert any(r.get(name) for r in (MODELS, HOOKS, DATASETS, TRANSFORMS, WEIGHT_INITIALIZERS)), name
        if name.removeprefix("mmlisa.") in backbones.__all__:
            options = {k: v for k, v in node.items() if k != "_delete_"}
            with torch.device("meta"):
                built = MODELS.build(options)
            if (neck := value.get("neck")) and value.get("backbone") is node:
                assert list(neck["in_channels"]) == list(built.feature_channels)


def walk(node: Any) -> Iterator[dict]:
    if isinstance(node, dict):
        yield node
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list | tuple) else ():
        yield from walk(child)


def check_config(path: Path) -> None:
    """A whole config: the model is built without weights; data sets and their steps are registered."""
    cfg = load_config(str(path))
    import_module(f"{cfg.default_scope}.models")
    import_module(f"{cfg.default_scope}.datasets")
    MODELS.get("mmlisa.MlpClsHead")  # imports what creates tensors, before the meta device
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        with torch.device("meta"):
            MODELS.build(cfg.model)
        for loader in (cfg.train_dataloader, cfg.val_dataloader, cfg.test_dataloader):
            for name in (str(node["type"]) for node in walk(loader.dataset.to_dict()) if "type" in node):
                assert any(is_registered(name, registry, cfg.default_scope) for registry in (DATASETS, TRANSFORMS)), (
                    name
                )


def is_registered(name: str, registry: Registry, scope: str) -> bool:
    with registry.switch_scope_and_registry(scope) as scoped:
        return scoped.get(name) is not None


@with_blocks
def test_commands_are_understood(page, monkeypatch):
    blocks = read_blocks(page)
    written = {block.title for block in blocks if block.title}
    for words in commands(blocks):
        check_command(words, written, monkeypatch)


def check_command(words: list[str], written: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    while "=" in words[0]:
        words = words[1:]
    if words[:2] == ["uv", "run"]:
        words = words[2:]
    if words[0] in ("torchrun", "srun"):  # whatever comes before the tool is the launcher's
        words = words[next(i for i, word in enumerate(words) if word.startswith("tools/")) :]
    if words[0] == "python":
        words = words[1:]
        if words[0] == "-c":
            compile(words[1], "-c", "exec")
            return
        if words[0] == "-m":
            assert importlib.util.find_spec(words[1]), words
            return
    program, *rest = words
    if program == "mmlisa":
        if rest[0].startswith("-"):
            return
        assert rest[0] in cli.COMMANDS, words
        check_tool(cli.tools_folder() / cli.COMMANDS[rest[0]], rest[1:], written, monkeypatch)
    elif program.startswith("tools/"):
        check_tool(ROOT / program, rest, written, monkeypatch)
    elif program.endswith(".py"):
        assert program in written or (ROOT / program).is_file(), words
    elif program in OTHERS:
        check_extras(words)
    else:
        assert (ROOT / program).is_file(), f"{words}: unknown program"


def check_tool(path: Path, arguments: list[str], written: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The tool's own parser takes the arguments, and the config is one of the page's or ships with mmlisa."""
    assert path.is_file(), path
    spec = importlib.util.spec_from_file_location(path.stem, path)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    for kind in ("config", "checkpoint", "existing_path"):  # files that the page's earlier commands write
        monkeypatch.setattr(cli, kind, str)
    monkeypatch.setattr(sys, "argv", [str(path), *arguments])
    args = tool.parse_args()
    models = getattr(args, "model", None) or ()
    models = () if isinstance(models, str) else models  # of fit, a name of its own
    for config in [getattr(args, "config", None), *(model[0] for model in models)]:
        if config and not config.isupper() and config not in written:
            assert (ROOT / config).is_file() or mmlisa.config_path(config), config


def check_extras(words: list[str]) -> None:
    """``mmlisa[extra]`` names extras that there are."""
    part = (ROOT / "pyproject.toml").read_text().partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    known = set(re.findall(r"^([\w-]+) = \[", part, re.MULTILINE))
    for word in words:
        if match := re.search(r"(?:^\.|^mmlisa|\.whl)\[(.*)\]$", word):
            assert set(match[1].split(",")) <= known, word
