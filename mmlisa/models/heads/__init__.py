"""Heads that no OpenMMLab package has."""

from .distillation import DistilledClassifier, SelfDistilledClassifier
from .mlp_cls_head import MlpClsHead
