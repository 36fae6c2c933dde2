# ruff: noqa: F401 (mmcv looks the operators up here)
"""Contents of ``mmcv._ext`` by mmcv's names; `mmlisa.mmcv_ops.ExtensionFinder` loads this module in its place.

mmcv's Python functions allocate the tensors that an operator returns and pass them in to be filled. mmcv asks for all of its
operators at import; those that are missing here raise an error when they are called.
"""

from collections.abc import Callable
from typing import NoReturn

from mmlisa.mmcv_ops.deform_conv import (
    deform_conv_backward_input,
    deform_conv_backward_parameters,
    deform_conv_forward,
    modulated_deform_conv_backward,
    modulated_deform_conv_forward,
)
from mmlisa.mmcv_ops.focal_loss import sigmoid_focal_loss_backward, sigmoid_focal_loss_forward
from mmlisa.mmcv_ops.ms_deform_attn import ms_deform_attn_backward, ms_deform_attn_forward
from mmlisa.mmcv_ops.nms import nms, softnms
from mmlisa.mmcv_ops.roi_align import roi_align_backward, roi_align_forward


# mmdet's and mmseg's environment reports call these two.
def get_compiler_version() -> str:
    return "none: mmlisa.mmcv_ops"


def get_compiling_cuda_version() -> str:
    return "not available"


def __getattr__(name: str) -> Callable[..., NoReturn]:
    """Return a stand-in for a missing operator; calling it raises NotImplementedError."""
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def missing(*args: object, **kwargs: object) -> NoReturn:
        raise NotImplementedError(
            f"the operator {name!r} needs mmcv's compiled operators; to compile them, see docs/install.md, 'Compiled operators'"
        )

    return missing
