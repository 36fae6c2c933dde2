"""The interface between backbones and token mixers, and the construction of token mixers from configs.

A token mixer (an attention operator) is an ``nn.Module`` built as ``Operator(channels, num_heads, *, grid, **its own options)``
and called as ``operator(x, grid)``, ``[B, N, C] -> [B, N, C]``. ``x`` holds the tokens of ``grid`` in row-major order, after
N - prod(grid) prefix tokens (a class token) of some backbones. ``grid`` at construction is the pretraining grid, the size of
position-dependent parameters. At the call, it may be any other.

The operators document their own options and errors only. All raise UserError for heads that do not divide the channels and, at
the call, for fewer tokens than the grid has, or for prefix tokens that they do not take.
"""

from collections.abc import Callable, Iterable, Sequence
from inspect import Parameter, signature
from math import prod
from typing import Any, ClassVar

from torch import Tensor, nn

from mmlisa.errors import UserError
from mmlisa.ops import beyond_fp16
from mmlisa.registry import MODELS

from . import OPERATORS


def build_attention(
    cfg: dict[str, Any], channels: int, num_heads: int, grid: Sequence[int], *, may_shift: bool = True
) -> nn.Module:
    """Build the operator that ``cfg['type']`` names in mmlisa's registry, with the rest of ``cfg`` as its options.

    Hosts with windows set ``may_shift`` in every second block: elsewhere, ``shift=True`` of ``cfg`` is False. An unregistered
    type, an unknown option and an invalid value are UserErrors.
    """
    options = dict(cfg)
    operator = _find_operator(options.pop("type"))
    if options.get("shift") and not may_shift:
        options["shift"] = False
    if operator is None:
        raise UserError(f"attention={cfg!r}; its type must be one of {OPERATORS}")
    check_options(operator, options)
    return operator(channels, num_heads, grid=tuple(grid), **options)


def _find_operator(name: Any) -> type[nn.Module] | None:
    """Return the operator of a ``type``, which may be the class itself."""
    if not isinstance(name, str):
        return name
    # Not MODELS.build: that searches MMEngine's default scope ('mmdet' in a detection config) before mmlisa's. MODELS.get imports
    # mmdet and mmpretrain for their heads: only for names that are not known yet.
    return MODELS.module_dict.get(name) or MODELS.get(name)


def resolved_options(cfg: dict[str, Any]) -> dict[str, Any]:
    """Return an operator's config with its class name as ``type``, and with the defaults of the options that it leaves out.

    The backend is left out: it decides how the operator is executed, not what it computes.
    """
    operator = _find_operator(cfg["type"])
    defaults = {name: a.default for name, a in _arguments(operator).items() if a.default is not Parameter.empty}
    options = {**defaults, **cfg, "type": operator.__name__}
    options.pop("backend", None)
    return options


def _arguments(cls: type) -> dict[str, Parameter]:
    """Return the arguments of a class whose constructors pass further ones on to each other."""
    arguments: dict[str, Parameter] = {}
    for base in cls.__mro__:
        own = signature(base.__init__).parameters.values() if "__init__" in vars(base) else ()
        kinds = {argument.kind for argument in own}
        for argument in own:
            if argument.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
                arguments.setdefault(argument.name, argument)
        if kinds and Parameter.VAR_KEYWORD not in kinds:
            break
    return arguments


def check_options(cls: type, options: Iterable[str]) -> None:
    """Raise UserError for unknown names of keyword arguments of a class whose constructors pass them on to each other."""
    names = _arguments(cls)
    if unknown := [name for name in options if name not in names]:
        names = ", ".join(name for name in names if name not in ("self", "channels", "num_heads", "grid"))
        raise UserError(f"{cls.__name__} has no option {', '.join(map(repr, unknown))}; its options are {names}")


class HeadedAttention(nn.Module):
    """Base of operators with heads: ``proj(attend(q, k, v))`` with ``q, k, v = qkv(x)``, split into heads.

    A subclass gives :attr:`function`, :meth:`attend` if its function takes more, or :meth:`mix` if there is more between the
    projections.

    Args:
        channels: C.
        num_heads: h.
        grid: the pretraining grid.
        head_dims: width d of a head; None for C / h.
        key_dims: width of a head's queries and keys; None for d.
        qkv_bias: bias in the query, key and value projection.
        proj_bias: bias in the output projection; None for operators with another projection, or none.
    """

    function: ClassVar[Callable[..., Tensor]]  # of query, key and value
    # Whether N may exceed prod(grid) by prefix tokens, which then are tokens like all others.
    takes_prefix: ClassVar[bool] = True
    # Whether it computes from turned queries and keys what it computes from others; see :meth:`turn`.
    takes_rotary: ClassVar[bool] = False
    # Without autocast in fp16, for operators whose values grow with the cube of their input and leave its range.
    full_precision: ClassVar[bool] = False
    # Rotary positions of the host, called with tokens ``[B, h, N, d]`` and their grid.
    rotary: Callable[[Tensor, Sequence[int]], Tensor] | None = None

    def __init__(
        self,
        channels: int,
        num_heads: int,
        *,
        grid: Sequence[int],
        head_dims: int | None = None,
        key_dims: int | None = None,
        qkv_bias: bool = True,
        proj_bias: bool | None = True,
    ) -> None:
        super().__init__()
        self.num_heads, self.head_dims = num_heads, head_dims or check_heads(channels, num_heads)
        self.qkv = nn.Linear(channels, num_heads * (self.head_dims + 2 * (key_dims or self.head_dims)), bias=qkv_bias)
        if proj_bias is not None:
            self.proj = nn.Linear(num_heads * self.head_dims, channels, bias=proj_bias)

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        check_tokens(x, grid, self.takes_prefix)
        if self.full_precision:
            context, dtype = beyond_fp16(x, self)
            with context:
                return self.mix(x.to(dtype), grid)
        return self.mix(x, grid)

    def mix(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        """:meth:`forward`, with checked tokens and in the precision that was chosen for it."""
        query, key, value = (split_heads(t, self.num_heads) for t in self.qkv(x).chunk(3, dim=2))
        query, key = self.turn(query, key, grid)
        return self.proj(join_heads(self.attend(query, key, value, grid)))

    def turn(self, query: Tensor, key: Tensor, grid: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Turn query and key by the rotary positions of the host, if it has any: ``[B, h, N, d]`` each."""
        return (query, key) if self.rotary is None else (self.rotary(query, grid), self.rotary(key, grid))

    def attend(self, query: Tensor, key: Tensor, value: Tensor, grid: Sequence[int]) -> Tensor:
        """The operator's function: ``[B, h, N, d]`` each -> ``[B, h, N, d]``."""
        return self.function(query, key, value)


def with_rotary(attention: nn.Module, rotary: Callable[[Tensor, Sequence[int]], Tensor]) -> nn.Module:
    """Let an operator turn its queries and keys by ``rotary``; one that cannot is a UserError."""
    if not getattr(attention, "takes_rotary", False):
        raise UserError(
            f"attention=dict(type='{type(attention).__name__}') has no place for the rotary positions of this backbone; set "
            "type to SoftmaxAttention, CellAttention, FocusedLinearAttention without windows, or LinearAngularAttention"
        )
    attention.rotary = rotary
    return attention


def check_heads(channels: int, num_heads: int) -> int:
    """Return the width of a head, or raise UserError if the heads do not divide the channels."""
    if num_heads < 1 or channels % num_heads:
        raise UserError(
            f"channels={channels} is not a multiple of num_heads={num_heads}; in a network, arch gives both for each stage"
        )
    return channels // num_heads


def check_tokens(x: Tensor, grid: Sequence[int], takes_prefix: bool = False) -> int:
    """Return the number of prefix tokens in ``x: [B, N, C]``, or raise UserError if there are too few or too many tokens."""
    count = prod(grid)
    prefix = x.shape[1] - count
    if prefix < 0:
        raise UserError(f"the grid {tuple(grid)} has {count} tokens, but x only {x.shape[1]}")
    if not takes_prefix and prefix:
        raise UserError(
            f"this attention has no place for class tokens: it takes the {count} tokens of the grid {tuple(grid)}, and got "
            f"{x.shape[1]}; set attention to another type, or choose a backbone without class tokens"
        )
    return prefix


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """``[B, N, C] -> [B, h, N, d]``, a view."""
    return x.unflatten(2, (num_heads, -1)).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """``[B, h, N, d] -> [B, N, C]``."""
    return x.transpose(1, 2).flatten(2)
