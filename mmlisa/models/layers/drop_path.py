"""Stochastic depth (Huang et al., 2016), https://arxiv.org/abs/1603.09382."""

from torch import Tensor, nn


class DropPath(nn.Module):
    """Zero the whole of some samples in training, and scale the others so that the mean stays.

    timm has the same layer, but its import builds the registry of all of timm's models, which takes longer than that of PyTorch.

    Args:
        drop_prob: share of the samples to zero.
    """

    def __init__(self, drop_prob: float = 0.0) -> None:
        super().__init__()
        self.drop_prob = drop_prob

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.drop_prob == 0:
            return x
        kept = 1 - self.drop_prob
        mask = x.new_empty(len(x), *(1,) * (x.ndim - 1)).bernoulli_(kept)
        return x * (mask / kept if kept else mask)

    def extra_repr(self) -> str:
        return f"drop_prob={self.drop_prob:g}"
