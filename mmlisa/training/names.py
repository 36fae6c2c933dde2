"""Top-level names of a config that nothing reads: misspelt entries, and pipelines that no loader has.

This module imports the standard library only.
"""

import ast
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from mmlisa.errors import UserError

# Entries that MMEngine's Runner and FlexibleRunner read, and those that mmlisa and OpenMMLab's tools read.
_OF_RUNNERS = {
    *("model", "work_dir", "train_dataloader", "val_dataloader", "test_dataloader", "train_cfg", "val_cfg", "test_cfg"),
    *("auto_scale_lr", "optim_wrapper", "param_scheduler", "val_evaluator", "test_evaluator", "default_hooks"),
    *("custom_hooks", "data_preprocessor", "load_from", "resume", "launcher", "env_cfg", "log_processor", "log_level"),
    *("visualizer", "default_scope", "randomness", "experiment_name", "strategy", "runner_type", "model_wrapper_cfg"),
    *("sync_bn", "find_unused_parameters", "activation_checkpointing", "efficient_conv_bn_eval", "compile"),
    "init_weights_for_test_or_val",
}
_OF_COMMANDS = {"pretrained_by", "tta_model", "tta_pipeline"}
READ = _OF_RUNNERS | _OF_COMMANDS
# With the names that MMEngine reads in the file alone, and those that configs share by convention.
KNOWN = READ | {"_base_", "custom_imports", "train_pipeline", "val_pipeline", "test_pipeline"}
# Settings that stand elsewhere: the entries of OpenMMLab's configs before MMEngine, and options of other libraries.
_ELSEWHERE = {
    "batch_size": "train_dataloader.batch_size",
    "checkpoint_config": "default_hooks.checkpoint",
    "cudnn_benchmark": "env_cfg.cudnn_benchmark",
    "data": "train_dataloader, val_dataloader and test_dataloader",
    "dist_params": "env_cfg.dist_cfg",
    "evaluation": "val_evaluator and train_cfg.val_interval",
    "log_config": "default_hooks.logger",
    "lr": "optim_wrapper.optimizer.lr",
    "lr_config": "param_scheduler",
    "max_epochs": "train_cfg.max_epochs",
    "max_iters": "train_cfg.max_iters",
    "optimizer": "optim_wrapper.optimizer",
    "optimizer_config": "optim_wrapper.clip_grad",
    "resume_from": "load_from with resume=True",
    "runner": "train_cfg",
    "seed": "randomness.seed",
    "total_epochs": "train_cfg.max_epochs",
}


def check_options(options: Iterable[str], entries: Iterable[str]) -> str:
    """Refuse keys of ``--cfg-options`` whose top-level name nothing reads; ``entries`` are the names that the config has.

    The returned warning lists variables of the config: it has been evaluated, so that a new value changes nothing.

    Raises:
        UserError: neither the config nor a runner or command knows a name; the message has the closest known one.
    """
    names = dict.fromkeys(key.partition(".")[0] for key in options)
    known = READ | {*entries}
    for name in names:
        if name not in known:
            meant = _ELSEWHERE.get(name) or _closest(name, known, 0.6)
            hint = f"; did you mean {meant}?" if meant else ""
            raise UserError(f"--cfg-options: '{name}' is not an entry of the config, and nothing reads it{hint}")
    if variables := [name for name in names if name not in READ]:
        listed = ", ".join(variables)
        return f"--cfg-options changes nothing with {listed}: the config has used its variables; set the entries themselves"
    return ""


def warn_of_names(path: Path, cfg: Mapping[str, Any], text: str) -> None:
    """Warn of names that a config file sets and nothing reads, at their lines; only files in Python are looked at.

    These are unused variables close to a known name and, if the file inherits, settings that stand elsewhere, and a
    ``train_pipeline``, ``val_pipeline`` or ``test_pipeline`` that its loader does not have.

    Args:
        path: the file.
        cfg: the config, before options are applied to it.
        text: of the file and its bases, as ``Config.text``.
    """
    if path.suffix != ".py":
        return
    own_text = path.read_text(encoding="utf-8")
    tree = ast.parse(own_text)
    lines, used = _assigned(tree), _used(tree)
    # The config that MMEngine writes into a work dir inherits nothing: there, all variables are unused, and options have
    # changed the pipelines of the loaders.
    inherits = "_base_" in lines or any(isinstance(node, ast.With) for node in tree.body)
    in_bases = {*re.findall(r"^(\w+) *=", text.replace(own_text, ""), re.MULTILINE)}
    for name in [name for name in lines if name not in used | in_bases | KNOWN]:
        elsewhere = _ELSEWHERE.get(name) if inherits else None
        if meant := elsewhere or _closest(name, KNOWN, 0.85):
            _warn(f"nothing reads '{name}'; did you mean {meant}?", path, lines[name])
    for name, loader in _stray_pipelines(cfg):
        if inherits and name in lines:
            _warn(f"{loader}.dataset has another pipeline than {name}; replace that one, too", path, lines[name])


def _closest(name: str, known: Iterable[str], likeness: float) -> str:
    return next(iter(get_close_matches(name, known, n=1, cutoff=likeness)), "")


def _warn(message: str, path: Path, line: int) -> None:
    warnings.warn_explicit(message, UserWarning, str(path), line)


def _assigned(tree: ast.Module) -> dict[str, int]:
    """Return the names that a file assigns at its top level, with the last line of each."""
    targets = [target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets]
    return {target.id: target.lineno for target in targets if isinstance(target, ast.Name)}


def _used(tree: ast.Module) -> set[str]:
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    return {node.id for node in names if not isinstance(node.ctx, ast.Store)}


def _stray_pipelines(cfg: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the names of the pipelines at the top level that the data sets of their loaders lack, with the loaders."""
    for split in ("train", "val", "test"):
        name, loader = f"{split}_pipeline", f"{split}_dataloader"
        stated = _plain(cfg.get(name))
        found = [_plain(pipeline) for pipeline in _pipelines(cfg.get(loader))]
        if stated and found and stated not in found:
            yield name, loader


def _pipelines(entry: Any) -> Iterator[Any]:
    """Yield the values of ``pipeline`` at any depth of a loader's config, in wrappers and joined data sets, too."""
    if isinstance(entry, Mapping):
        if "pipeline" in entry:
            yield entry["pipeline"]
        for value in entry.values():
            yield from _pipelines(value)
    elif isinstance(entry, list | tuple):
        for value in entry:
            yield from _pipelines(value)


def _plain(entry: Any) -> Any:
    """Return an entry without ``_scope_``, which MMEngine adds to what a child config has read, and with lists for tuples."""
    if isinstance(entry, Mapping):
        return {key: _plain(value) for key, value in entry.items() if key != "_scope_"}
    if isinstance(entry, list | tuple):
        return [_plain(value) for value in entry]
    return entry
