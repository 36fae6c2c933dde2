"""The preprocessor and the test pipeline of a config, compared with those that a checkpoint was trained with.

The checkpoint has its config as text. The text is parsed, never run.
"""

import ast
from collections.abc import Mapping
from logging import WARNING
from typing import Any

from mmengine.config import Config
from mmengine.logging import print_log
from torch import nn

# Places in a config of what decides which numbers a network gets for an image; a model may be in a wrapper.
_PREPROCESSOR = (
    "model.data_preprocessor",
    "model.module.data_preprocessor",
    "model.detector.data_preprocessor",
    "data_preprocessor",
)
_PIPELINE = ("test_dataloader.dataset.pipeline",)


def warn_of_inputs(checkpoint: Mapping[str, Any], cfg: Config, filename: str) -> None:
    """Log in which way a config prepares images otherwise than the one that the checkpoint was trained with."""
    meta = checkpoint.get("meta")
    text = meta.get("text_of_config") if isinstance(meta, Mapping) else None
    if not text:
        unseen = "holds no config; preprocessor and test pipeline are not compared"
        print_log(f"checkpoint '{filename}' {unseen}", logger="current")
        return
    for line in compare_inputs(text, cfg):
        print_log(f"checkpoint '{filename}' {line}", logger="current", level=WARNING)


def compare_inputs(text: str, cfg: Config) -> list[str]:
    """Return a line for each part of the input that differs from that in ``text``, the config of a checkpoint.

    Pipelines of test-time augmentation and of tiles are not compared.
    """
    try:
        saved = ast.parse(text)
    except (SyntaxError, ValueError):
        return ["has a config that cannot be parsed; preprocessor and test pipeline were not compared"]
    ours = ast.parse(cfg.pretty_text)
    parts = {"data_preprocessor": _PREPROCESSOR}
    if not {"module", "detector"} & cfg.model.keys():
        parts["test pipeline"] = _PIPELINE
    lines = []
    for part, places in parts.items():
        theirs = _first_found(saved, places)
        mine = _first_found(ours, places)
        if theirs != mine:
            lines.append(f"was trained with another {part}: {_difference(theirs, mine)}")
    return lines


def compare_statistics(model: nn.Module) -> str:
    """Return in which way a preprocessor's mean and std are not those that timm states of a network; '' if they are.

    The order of the channels is not compared.
    """
    network = getattr(getattr(model, "backbone", None), "network", None)
    stated = getattr(network, "pretrained_cfg", None) or {}
    preprocessor = getattr(model, "data_preprocessor", None)
    for name in ("mean", "std"):
        if name not in stated:
            continue
        wanted = [round(255 * value, 2) for value in stated[name]]
        given = getattr(preprocessor, name, None)
        if given is None:
            return (
                f"model.data_preprocessor has no {name}, and is not compared with {wanted}, timm's for model.backbone"
            )
        used = [round(value, 2) for value in given.flatten().tolist()]
        if len(used) != len(wanted) or any(abs(a - b) > 1 for a, b in zip(wanted, used, strict=True)):
            return f"model.data_preprocessor.{name} is {used}, but timm's for model.backbone is {wanted}"
    return ""


def _first_found(tree: ast.Module, places: tuple[str, ...]) -> Any:
    return next((found for place in places if (found := _find(tree, place)) is not None), None)


def _find(tree: ast.Module, place: str) -> Any:
    """Return the entry of a config at a dotted place, as plain data; None if there is none."""
    first, *rest = place.split(".")
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and getattr(statement.targets[0], "id", None) == first:
            value = _plain(statement.value)
            for key in rest:
                value = value.get(key) if isinstance(value, dict) else None
            return value
    return None


def _plain(node: ast.AST) -> Any:
    """Return the data of a node: ``dict(…)``, displays and literals; of anything else its text."""
    if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "dict" and not node.args:
        return {keyword.arg: _plain(keyword.value) for keyword in node.keywords}
    if isinstance(node, ast.Dict):
        return {ast.unparse(key): _plain(value) for key, value in zip(node.keys, node.values, strict=True) if key}
    if isinstance(node, ast.List | ast.Tuple):
        return [_plain(each) for each in node.elts]
    return ast.unparse(node)


def _difference(theirs: Any, ours: Any, place: str = "") -> str:
    """Return the first place where two entries differ, with both values."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in [*theirs, *(key for key in ours if key not in theirs)]:
            if theirs.get(key) != ours.get(key):
                return _difference(theirs.get(key), ours.get(key), f"{place}.{key}".lstrip("."))
    if isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for index, (one, other) in enumerate(zip(theirs, ours, strict=True)):
            if one != other:
                return _difference(one, other, f"{place}.{index}".lstrip("."))
    return f"{place or 'all of it'} was {theirs}, and is {ours}"
