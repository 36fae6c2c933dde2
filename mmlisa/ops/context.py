"""How operators are called: the rule of arguments and precision; autocast, tracers and function transforms around a call."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial, reduce, wraps
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _disable_current_modes

from mmlisa.errors import UserError

_are_functorch_transforms_active = getattr(torch._C, "_are_functorch_transforms_active", lambda: False)


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


def check_shape(name: str, tensor: Tensor | None, shape: Sequence[int]) -> None:
    """Raise a UserError if an argument is there and has another shape."""
    if tensor is not None and tensor.shape != shape:
        raise UserError(f"{name} has shape {tuple(tensor.shape)}; these tokens need {tuple(shape)}")


def no_autocast(device: torch.device) -> AbstractContextManager:
    """Return a context that switches autocast off on ``device``."""
    # Only if it is on: exporting graphs with dozens of such regions takes minutes. The meta device has no autocast.
    if device.type != "meta" and torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


def current_autocast(device: torch.device) -> Callable[[], AbstractContextManager]:
    """Return a function that restores the present autocast state of ``device``, for a backward pass."""
    name = device.type
    if not torch.amp.is_autocast_available(name):
        return nullcontext
    enabled, dtype = torch.is_autocast_enabled(name), torch.get_autocast_dtype(name)

    def autocast() -> AbstractContextManager:
        if torch.is_autocast_enabled(name) == enabled and (not enabled or torch.get_autocast_dtype(name) == dtype):
            return nullcontext()
        return torch.autocast(name, dtype, enabled)

    return autocast


def beyond_fp16(x: Tensor, module: nn.Module) -> tuple[AbstractContextManager, torch.dtype]:
    """Return a context for layers of ``module`` whose values leave the range of fp16, and the dtype of their inputs in it.

    Autocast in fp16 is switched off, and the dtype is that of the module's first parameter at any depth, since wrapped layers
    have no ``weight``. Autocast in bf16 stays, which has the range of fp32. The dtype is then that of ``x``, as without autocast.
    """
    device = x.device.type
    if device == "meta" or not torch.is_autocast_enabled(device) or torch.get_autocast_dtype(device) != torch.float16:
        return nullcontext(), x.dtype
    return torch.autocast(device, enabled=False), next((p.dtype for p in module.parameters()), torch.float32)


def at_least_fp32(x: Tensor) -> Tensor:
    """Convert half precision to fp32; fp32, fp64 and complex numbers stay unchanged."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x  # an export records every conversion


def out_of_fp16(x: Tensor) -> Tensor:
    """Convert fp16 to fp32, because a square overflows beyond 256; bf16 has the range of fp32 and stays, as all others."""
    return x.float() if x.dtype == torch.float16 else x


def widest(*tensors: Tensor) -> list[Tensor]:
    """Return all tensors in the widest of their dtypes, fp32 at least."""
    dtype = reduce(torch.promote_types, (tensor.dtype for tensor in tensors), torch.float32)
    return [tensor.to(dtype) for tensor in tensors]


def is_traced() -> bool:
    """Return whether a graph is recorded: by ``torch.compile``, ``torch.export`` or ``torch.jit.trace``."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing()


def is_transformed() -> bool:
    """Return whether a transform of ``torch.func`` or forward-mode differentiation is active."""
    return _are_functorch_transforms_active() or forward_ad._current_level >= 0


def records_gradients() -> bool:
    """Return whether autograd records, and neither a tracer nor a transform: whether a closed form of a gradient is of use."""
    return torch.is_grad_enabled() and not is_traced() and not is_transformed()


def is_exporting() -> bool:
    """Return whether ``torch.export`` records, with ``strict=False``."""
    # torch.compiler.is_exporting() is missing before PyTorch 2.7, and true under torch.compile before 2.12.
    return torch.compiler.is_compiling() and not torch.compiler.is_dynamo_compiling()


def as_constants(grid: Sequence[int]) -> AbstractContextManager:
    """Context in which an export computes at once and records nothing, if all sizes in ``grid`` are known.

    onnxruntime does not fold all that would be recorded: what follows from a range would be computed in every call.
    """
    is_known = all(isinstance(n, int) for n in grid)
    return _disable_current_modes() if is_exporting() and is_known else nullcontext()


def has_free_size(*sizes: int) -> bool:
    """Return whether ``torch.export`` leaves a size free; a branch on that size would be recorded for the example only."""
    return is_exporting() and any(isinstance(size, torch.SymInt) for size in sizes)


def divide_up(size: int, by: int) -> int:
    """``size / by``, rounded up, also of a free size: the exporter to ONNX rounds ``-(-size // by)`` towards zero."""
    return (size + by - 1) // by
