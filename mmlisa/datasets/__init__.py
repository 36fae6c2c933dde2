"""Datasets and transforms; those that extend a library are registered if it is installed."""

from importlib.util import find_spec

if find_spec("mmcv"):
    from . import transforms  # noqa: F401
if find_spec("mmdet"):
    from . import coco, demo_det  # noqa: F401
if find_spec("mmseg"):
    from . import demo_seg, paired_seg  # noqa: F401
if find_spec("mmpretrain"):
    from . import demo_cls  # noqa: F401
