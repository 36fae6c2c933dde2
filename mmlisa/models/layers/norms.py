"""Norms over the channels of tokens ``[..., C]``."""

from typing import Any

from torch import Tensor, nn

from .recompute import LayerNorm


class TokenNorm(nn.BatchNorm1d):
    """Batch norm over the channels of tokens: ``[..., C] -> [..., C]``."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.flatten(0, -2)).view(x.shape)


class SyncTokenNorm(nn.SyncBatchNorm):
    """:class:`TokenNorm` with the statistics of all processes."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.flatten(0, -2)).view(x.shape)


_NORMS = {"LN": LayerNorm, "BN": TokenNorm, "SyncBN": SyncTokenNorm}


def build_norm(cfg: dict[str, Any], channels: int) -> nn.Module:
    """Build a norm over the channels of tokens ``[..., channels]``: ``dict(type='LN' | 'BN' | 'SyncBN', eps=…)``.

    Raises:
        TypeError: ``cfg`` is not a dict, or has an unknown option.
        ValueError: another type.
    """
    if not isinstance(cfg, dict):
        raise TypeError(f"norm_cfg={cfg!r}; it must be a dict such as dict(type='LN', eps=1e-6)")
    options = dict(cfg)
    name = options.pop("type", None)
    if name not in _NORMS:
        raise ValueError(f"norm_cfg=dict(type={name!r}); it must be one of {sorted(_NORMS)}")
    return _NORMS[name](channels, **options)
