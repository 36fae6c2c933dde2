"""Conventions by which the papers' tables count parameters and multiply-accumulate operations (MACs)."""

from dataclasses import dataclass

from mmlisa.complexity import Complexity


@dataclass(frozen=True)
class Convention:
    """Counting convention of a paper's table.

    Attributes:
        weights: weight of each kind of work in the MACs.
        layer_weights_only: count as parameters only the weights of convolutions and linear layers, not all of them.
    """

    weights: dict[str, float]
    layer_weights_only: bool = False

    def macs(self, counts: Complexity) -> float:
        return sum(weight * counts.work.get(kind, 0) for kind, weight in self.weights.items())

    def params(self, counts: Complexity) -> int:
        return counts.layer_weights if self.layer_weights_only else counts.parameters


_PRODUCTS = dict(conv=1, linear=1, matmul=1)
CONVENTIONS: dict[str, Convention] = {
    "products": Convention(_PRODUCTS),  # convolutions, linear layers, contractions: what most papers call FLOPs
    "products+fft": Convention(dict(_PRODUCTS, fft=1)),
    "all layers": Convention(dict(_PRODUCTS, bias=1, norm=2, activation=1)),
    "weights": Convention(_PRODUCTS, layer_weights_only=True),
}
