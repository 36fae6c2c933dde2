"""Checks of arguments that several operators take."""

from collections.abc import Sequence

from torch import Tensor

BACKENDS = ("auto", "reference")


def check_backend(backend: str, backends: Sequence[str] = BACKENDS) -> None:
    """Raise ValueError unless ``backend`` is in ``backends``."""
    if backend not in backends:
        raise ValueError(f"backend is {backend!r}; it must be one of {tuple(backends)}")


def check_tokens_of_heads(query: Tensor, key: Tensor, value: Tensor) -> None:
    """Raise ValueError unless all three are ``[B, h, N, d]`` of one shape."""
    if query.ndim != 4 or not query.shape == key.shape == value.shape:
        raise ValueError(
            "query, key and value must be [B, h, N, d] of one shape, got "
            f"{tuple(query.shape)}, {tuple(key.shape)}, {tuple(value.shape)}"
        )
