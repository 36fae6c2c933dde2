"""Building of models from configs."""

from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from torch import nn


def build_model(cfg: Config) -> nn.Module:
    """Build the model of a config, with the ``data_preprocessor`` beside it if it has none, as MMEngine's runner does."""
    init_default_scope(cfg.get("default_scope", "mmengine"))
    preprocessor = cfg.get("data_preprocessor")
    return MODELS.build(cfg.model, default_args=preprocessor and {"data_preprocessor": preprocessor})
