"""The dtype in which operators compute."""

import torch
from torch import Tensor


def widest(*tensors: Tensor) -> list[Tensor]:
    """Return the tensors in the widest of their dtypes, and at least in fp32."""
    dtype = torch.float32
    for tensor in tensors:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return [tensor.to(dtype) for tensor in tensors]
