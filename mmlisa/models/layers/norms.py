"""Norms over the channels of tokens ``[..., C]``."""

from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from .recompute import LayerNorm

_NORMS = {"LN": LayerNorm, "BN": nn.BatchNorm1d, "SyncBN": nn.SyncBatchNorm}


def norm_tokens(norm: nn.Module, x: Tensor) -> Tensor:
    """Apply ``norm`` to tokens ``[..., C]``; a batch norm gets them as ``[N, C]``.

    The caller does this, not a class of batch norms: to convert batch norms to synchronised ones or back, PyTorch and MMEngine
    replace each of them by a class of their own.
    """
    return norm(x.flatten(0, -2)).view(x.shape) if isinstance(norm, _BatchNorm) else norm(x)


def build_norm(cfg: dict[str, Any], channels: int) -> nn.Module:
    """Build a norm for :func:`norm_tokens` over ``channels``: ``dict(type='LN' | 'BN' | 'SyncBN', eps=…)``;
    ``requires_grad=False`` freezes it, as in OpenMMLab's configs.

    Raises:
        ValueError: another type.
    """
    options = dict(cfg)
    name, trained = options.pop("type", None), options.pop("requires_grad", True)
    if name not in _NORMS:
        raise ValueError(f"norm_cfg=dict(type={name!r}); it must be one of {sorted(_NORMS)}")
    return _NORMS[name](channels, **options).requires_grad_(trained)
