"""Networks whose every tensor shows in their outputs."""

import torch
from torch import nn


def randomised(model: nn.Module) -> nn.Module:
    """Random values for what starts constant, too: a forgotten norm or bias must show."""
    torch.manual_seed(0)
    for name, tensor in model.state_dict().items():
        if name.endswith("running_var"):
            tensor.uniform_(0.5, 1.5)
        elif tensor.is_floating_point():
            scale = 0.2 if tensor.ndim == 1 else tensor[0].numel() ** -0.5
            tensor.normal_(mean=float(tensor.ndim == 1 and name.endswith("weight")), std=scale)
    return model.eval()
