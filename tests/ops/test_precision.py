"""The dtypes that operators compute in."""

import torch
from torch import nn

from mmlisa.ops import layer_dtype


def test_integers_do_not_decide_the_dtype_of_layers():
    """As the packed weights of a quantised layer, which may come first."""
    module = nn.Module()
    module.packed = nn.Parameter(torch.zeros(2, dtype=torch.int8), requires_grad=False)
    x = torch.zeros(2, dtype=torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        assert layer_dtype(x, module) == torch.float32
        module.scale = nn.Parameter(torch.ones(2, dtype=torch.float64))
        assert layer_dtype(x, module) == torch.float64
    assert layer_dtype(x, module) == torch.bfloat16
