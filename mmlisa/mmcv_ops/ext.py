"""What ``mmcv._ext`` holds, by mmcv's names: loaded in its place by `mmlisa.mmcv_ops.ExtensionFinder`.

mmcv's Python functions allocate what an operator returns and pass it in, to be filled. Operators nobody here has written are there by
name as well, because mmcv asks for all of them at import, and raise an error when they are called.
"""

from collections.abc import Callable
from typing import NoReturn

from mmlisa.mmcv_ops.nms import nms
from mmlisa.mmcv_ops.roi_align import roi_align_backward, roi_align_forward

__all__ = ["nms", "roi_align_backward", "roi_align_forward"]


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
