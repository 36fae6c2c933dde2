"""The layers between the pooled features and the last linear layer of a classifier."""

from torch import Tensor, nn


class SquaredReLU(nn.Module):
    """``relu(x) ** 2`` (So et al., "Primer")."""

    def forward(self, x: Tensor) -> Tensor:
        return x.relu().square()


_ACTIVATIONS = {"GELU": nn.GELU, "ReLU": nn.ReLU, "SquaredReLU": SquaredReLU}


def hidden_layers(
    channels: int, activation: str = "GELU", pre_norm: bool = False, dropout: float = 0.0
) -> dict[str, nn.Module]:
    """Return (LayerNorm,) Linear C -> 4 C, activation, LayerNorm, (dropout) by name, in the order of MetaFormer's head."""
    hidden = 4 * channels
    return {
        "pre_norm": nn.LayerNorm(channels, eps=1e-6) if pre_norm else nn.Identity(),
        "fc1": nn.Linear(channels, hidden),
        "activation": _ACTIVATIONS[activation](),
        "norm": nn.LayerNorm(hidden, eps=1e-6),
        "dropout": nn.Dropout(dropout),
    }
