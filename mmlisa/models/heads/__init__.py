"""Heads that no OpenMMLab package has."""

from .mlp_cls_head import MlpClsHead

__all__ = ["MlpClsHead"]
