# ruff: noqa: F401 (mmcv looks the operators up here)
"""What ``mmcv._ext`` holds, by mmcv's names: loaded in its place by `mmlisa.mmcv_ops.ExtensionFinder`.

mmcv's Python functions allocate what an operator returns and pass it in, to be filled. Operators that nobody here has written
are there by name as well, because mmcv asks for all of them at import, and raise an error when they are called.
"""

from collections.abc import Callable
from typing import NoReturn

from mmlisa.mmcv_ops.bbox_overlaps import bbox_overlaps
from mmlisa.mmcv_ops.carafe import (
    carafe_backward,
    carafe_forward,
    carafe_naive_backward,
    carafe_naive_forward,
)
from mmlisa.mmcv_ops.deform_conv import (
    deform_conv_backward_input,
    deform_conv_backward_parameters,
    deform_conv_forward,
    modulated_deform_conv_backward,
    modulated_deform_conv_forward,
)
from mmlisa.mmcv_ops.focal_loss import (
    sigmoid_focal_loss_backward,
    sigmoid_focal_loss_forward,
    softmax_focal_loss_backward,
    softmax_focal_loss_forward,
)
from mmlisa.mmcv_ops.masked_conv import masked_col2im_forward, masked_im2col_forward
from mmlisa.mmcv_ops.ms_deform_attn import ms_deform_attn_backward, ms_deform_attn_forward
from mmlisa.mmcv_ops.nms import (
    line_nms_forward,
    nms,
    nms_match,
    softnms,
)
from mmlisa.mmcv_ops.psa_mask import psamask_backward, psamask_forward
from mmlisa.mmcv_ops.roi_pooling import (
    deform_roi_pool_backward,
    deform_roi_pool_forward,
    roi_align_backward,
    roi_align_forward,
    roi_pool_backward,
    roi_pool_forward,
)
from mmlisa.mmcv_ops.sync_bn import (
    sync_bn_backward_data,
    sync_bn_backward_param,
    sync_bn_forward_mean,
    sync_bn_forward_output,
    sync_bn_forward_var,
)


# Asked for by mmdet's and mmseg's reports of the environment.
def get_compiler_version() -> str:
    return "none: mmlisa.mmcv_ops"


def get_compiling_cuda_version() -> str:
    return "not available"


def __getattr__(name: str) -> Callable[..., NoReturn]:
    """A stand-in for an operator that is not here; calling it raises NotImplementedError."""
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def missing(*args: object, **kwargs: object) -> NoReturn:
        from mmlisa.check_env import build_mmcv_command

        raise NotImplementedError(
            f"the operator {name!r} needs mmcv's compiled operators, and this mmcv was installed without them. "
            f"To build it with them: {build_mmcv_command()}"
        )

    return missing
