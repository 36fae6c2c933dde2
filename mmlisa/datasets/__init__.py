"""Datasets and transforms; those that extend a library are registered if it is installed."""

from importlib.util import find_spec

if find_spec("mmcv"):
    from . import demo_datasets, transforms  # noqa: F401
if find_spec("mmseg"):
    from . import paired_seg  # noqa: F401
