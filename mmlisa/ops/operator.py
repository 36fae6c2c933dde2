"""The rule that all operators follow: which arguments they take, in which precision they compute and what they return."""

from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor

from .context import no_autocast

BACKENDS = ("auto", "reference")


def operator(
    function: Callable[..., Any] | None = None, *, backends: Sequence[str] = BACKENDS, one_shape: bool = False
) -> Callable[..., Any]:
    """Make a function of query, key, value and further arguments an operator.

    The function gets all floating-point tensors in the widest of their dtypes, fp32 at least, and runs without autocast. The
    result, or the first of several, is returned in the dtype of ``value``.

    Args:
        function: called as ``function(query, key, value, ...)``.
        backends: values of its option ``backend``, if it has one.
        one_shape: query, key and value must have one shape. Otherwise the widths of query and key must agree, and the tokens of
            key and value.

    Raises:
        ValueError: at the call, shapes that do not fit each other, or an unknown backend.
    """
    if function is None:
        return partial(operator, backends=backends, one_shape=one_shape)

    @wraps(function)
    def call(query: Tensor, key: Tensor, value: Tensor, *args: Any, **options: Any) -> Any:
        check_backend(options.get("backend", "auto"), backends)
        check_heads(query, key, value, one_shape)
        dtype, device, wide = value.dtype, query.device, torch.float32
        for x in (query, key, value, *args, *options.values()):
            if isinstance(x, Tensor) and x.is_floating_point():
                wide = torch.promote_types(wide, x.dtype)
        args = [_convert(x, wide) for x in (query, key, value, *args)]
        with no_autocast(device):
            y = function(*args, **{name: _convert(x, wide) for name, x in options.items()})
        return (_convert(y[0], dtype), *y[1:]) if isinstance(y, tuple) else _convert(y, dtype)

    return call


def _convert(x: Any, dtype: torch.dtype) -> Any:
    is_other = isinstance(x, Tensor) and x.is_floating_point() and x.dtype != dtype
    return x.to(dtype) if is_other else x  # an export records every conversion


def check_backend(backend: str, backends: Sequence[str] = BACKENDS) -> None:
    """Raise ValueError unless ``backend`` is in ``backends``."""
    if backend not in backends:
        raise ValueError(f"backend is {backend!r}; it must be one of {tuple(backends)}")


def check_heads(query: Tensor, key: Tensor, value: Tensor, one_shape: bool = True) -> None:
    """Raise ValueError unless query, key and value are ``[B, h, N, d]`` that fit each other."""
    q, k, v = query.shape, key.shape, value.shape
    if not len(q) == len(k) == len(v) == 4 or not (q == k == v if one_shape else q[3] == k[3] and k[2] == v[2]):
        rule = "of one shape" if one_shape else "with one width of query and key, and as many keys as values"
        raise ValueError(f"query, key and value must be [B, h, N, d] {rule}, got {tuple(q)}, {tuple(k)}, {tuple(v)}")
