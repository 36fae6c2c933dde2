"""Building of models, in a process that runs no code from the files which models and datasets read."""

import os
from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from mmengine.config import Config
from mmengine.fileio import PickleHandler, YamlHandler, register_handler
from mmengine.registry import MODELS, init_default_scope
from torch import nn

from mmlisa.checkpoints import use_safe_loader

from .checks import explain_unknown_type
from .config_checks import type_name

# Types that unpickle files past MMEngine's loaders, and the option that makes them do so.
_UNPICKLE = {
    "OpenImagesChallengeDataset": "hierarchy_file",
    "RAM": "tag_list",
    "RAMNormal": "tag_list",
    "RAMOpenset": "tag_list",
}


class _NoPickles(PickleHandler):
    """Writes pickles, such as the results of ``--out``, and refuses to read them."""

    def load_from_fileobj(self, file: Any, **options: Any) -> Any:
        raise ValueError(
            f"'{getattr(file, 'name', 'the file')}' is a pickle and could run code when read; save the data as .json instead"
        )


class _PlainYaml(YamlHandler):
    """Reads YAML without its tags for Python objects, which call functions."""

    def load_from_fileobj(self, file: Any, **options: Any) -> Any:
        return yaml.safe_load(file)


def guard_process(cfg: Config | Mapping[str, Any]) -> None:
    """Make MMEngine's loaders and ``torch.load`` safe in this process, and refuse types of ``cfg`` that go past them.

    ``torch.load`` reads weights only, also if a caller asks for more; PyTorch before 2.6 would run code otherwise.

    Raises:
        ValueError: a type or option of ``cfg`` that unpickles a file; names both.
    """
    use_safe_loader()
    os.environ.pop("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", None)
    os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"
    register_handler(["pkl", "pickle"])(_NoPickles)
    register_handler(["yaml", "yml"])(_PlainYaml)
    for part in _parts(cfg):
        kind = type_name(part)
        option = "decode_backend='pickle'" if part.get("decode_backend") == "pickle" else _UNPICKLE.get(kind)
        if option:
            raise ValueError(
                f"type='{kind}' would unpickle a file ({option}), which could run code; it is not supported here"
            )


def _parts(value: Any) -> Iterator[Mapping[str, Any]]:
    """Yield every dict of a config."""
    if isinstance(value, Mapping | Config):
        yield value
        value = list(value.values())
    for part in value if isinstance(value, list | tuple) else ():
        yield from _parts(part)


def build_model(cfg: Config) -> nn.Module:
    """Build the model of a config. All tools build their models here: parts such as teachers read files while they are built.

    A ``data_preprocessor`` beside the model becomes the model's if it has none, as in MMEngine's runner.

    Raises:
        ValueError: a ``type`` that does not exist, or that would unpickle a file.
        CheckpointError: a file that the model reads is damaged or could run code.
    """
    guard_process(cfg)
    init_default_scope(cfg.get("default_scope", "mmengine"))
    preprocessor = cfg.get("data_preprocessor")
    try:
        return MODELS.build(cfg.model, default_args=preprocessor and {"data_preprocessor": preprocessor})
    except KeyError as error:
        raise explain_unknown_type(error) or error from error
