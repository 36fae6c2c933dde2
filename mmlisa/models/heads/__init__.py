"""Heads that no OpenMMLab package has."""

from .distilled_classifier import DistilledClassifier
from .mlp_cls_head import MlpClsHead

__all__ = ["DistilledClassifier", "MlpClsHead"]
