"""The rule that all operators follow: which arguments they take, in which precision they compute and what they return."""

from collections.abc import Callable
from functools import partial, reduce, wraps
from typing import Any

import torch
from torch import Tensor

from mmlisa.errors import UserError

from .context import no_autocast


def operator(
    function: Callable[..., Any] | None = None, *, one_shape: bool = False, takes_bf16: bool = False
) -> Callable[..., Any]:
    """Make a function of query, key, value and further arguments an operator, which checks its arguments.

    The function gets all floating-point tensors in the widest of their dtypes, fp32 at least, and runs without autocast. The
    result, or the first of several, is returned in the dtype of ``value``.

    Args:
        function: called as ``function(query, key, value, ...)``.
        one_shape: see :func:`check_arguments`.
        takes_bf16: the function gets query, key and value in bf16 if all three are, and the other arguments as they are. It then
            keeps in fp32 what rounding would spoil. fp16 is always widened: its range ends at 65,504.
    """
    if function is None:
        return partial(operator, one_shape=one_shape, takes_bf16=takes_bf16)

    @wraps(function)
    def call(query: Tensor, key: Tensor, value: Tensor, *args: Any, **options: Any) -> Any:
        check_arguments(query, key, value, options.get("backend", "auto"), one_shape)
        dtype, device = value.dtype, query.device
        arguments = dict(enumerate((query, key, value, *args))) | options
        floats = {n: x for n, x in arguments.items() if isinstance(x, Tensor) and x.is_floating_point()}
        is_plain = options.get("backend") == "reference"
        if is_plain or not (takes_bf16 and query.dtype == key.dtype == dtype == torch.bfloat16):
            wide = reduce(torch.promote_types, (x.dtype for x in floats.values()), torch.float32)
            # An export records every conversion.
            arguments |= {name: x.to(wide) for name, x in floats.items() if x.dtype != wide}
        args = [arguments.pop(i) for i in range(3 + len(args))]
        with no_autocast(device):
            y = function(*args, **arguments)
        first, *others = y if isinstance(y, tuple) else (y,)
        first = first if first.dtype == dtype else first.to(dtype)
        return (first, *others) if others else first

    return call


def check_arguments(query: Tensor, key: Tensor, value: Tensor, backend: str = "auto", one_shape: bool = True) -> None:
    """Check the arguments of an operator.

    Raises:
        UserError: query, key and value are not ``[B, h, N, d]`` of one shape, or without ``one_shape`` of one width of query and
            key and with as many keys as values; ``backend`` is neither ``'auto'`` nor ``'reference'``.
    """
    q, k, v = query.shape, key.shape, value.shape
    if not len(q) == len(k) == len(v) == 4 or not (q == k == v if one_shape else q[3] == k[3] and k[2] == v[2]):
        rule = "of one shape" if one_shape else "with one width of query and key, and as many keys as values"
        raise UserError(f"query, key and value must be [B, h, N, d] {rule}, got {tuple(q)}, {tuple(k)}, {tuple(v)}")
    if backend not in ("auto", "reference"):
        raise UserError(f"backend is {backend!r}; it must be 'auto' or 'reference'")
