"""Every operator against its formula written out, in fp64: the value and all gradients, on the shapes that break things."""

from functools import partial
from math import pi

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from helpers.formulas import assert_equal, draw, products
from mmlisa import ops

# B, h, d, D, grid: one row, a prime number of tokens, a single token, one head, heads of one channel, one pattern
SHAPES = {
    "plain": (2, 3, 4, 3, (3, 4)),
    "row": (1, 2, 3, 2, (1, 6)),
    "column": (1, 2, 3, 2, (6, 1)),
    "prime": (2, 2, 2, 3, (1, 7)),
    "single-token": (2, 2, 3, 2, (1, 1)),
    "one-head": (1, 1, 4, 2, (2, 3)),
    "one-channel": (1, 3, 1, 2, (2, 3)),
    "one-pattern": (2, 2, 3, 1, (2, 3)),
}


def focus(t: Tensor, scale: Tensor, p: float) -> Tensor:
    """FLatten's Eq. 6, the channels of all heads of a token together."""
    t = (t.clamp(min=0) + 1e-6) / torch.log(1 + scale.exp())[:, None]
    power = t**p
    return power * (t.square().sum((1, 3), True) / power.square().sum((1, 3), True)).sqrt()


def attend(weight: Tensor, value: Tensor) -> Tensor:
    return torch.einsum("bhij,bhjd->bhid", weight, value)


def rectified(query: Tensor, key: Tensor) -> Tensor:
    return products(query.clamp(min=0), key.clamp(min=0))


def centred(t: Tensor, axis: int) -> Tensor:
    return t - t.sum(axis, keepdim=True) / t.shape[axis]


def length(t: Tensor, axes) -> Tensor:
    return t.square().sum(axes, keepdim=True).sqrt()


def focused_linear(q, k, v, scale):
    weight = products(focus(q, scale, 3), focus(k, scale, 3))
    return attend(weight / (weight.sum(3, keepdim=True) + q.shape[2] * 1e-6), v)


def relu_linear(q, k, v):
    weight = products(q.clamp(min=0) + 1e-6, k.clamp(min=0) + 1e-6)
    return attend(weight / (weight.sum(3, keepdim=True) + q.shape[2] * 1e-6), v)


def hydra(q, k, v):
    return q / length(q, (1, 3)) * (k / length(k, (1, 3)) * v).sum(2, keepdim=True)


def efficient(q, k, v):
    weight = products(q.exp() / q.exp().sum(3, keepdim=True), k.exp() / k.exp().sum(2, keepdim=True))
    return attend(weight, v)


def linear_angular(q, k, v):
    return v / 2 + attend(products(q / length(q, 3), k / length(k, 3)), v) / pi


def mean_centered(q, k, v, axis=2):
    weight = products(centred(q, axis), centred(k, axis))
    return attend(weight, v) / (q.shape[2] * q.shape[3] ** 0.5)


def relu_sum(q, k, v):
    return attend(rectified(q, k), v)


def relu_exp(q, k, v):
    weight = rectified(q, k)
    return attend(weight, v) / (weight.sum(3, keepdim=True) + 1e-6)


def masked_softmax(q, k, v):
    weight = (products(q, k) / q.shape[3] ** 0.5).exp()
    weight = weight / weight.sum(3, keepdim=True)
    return attend(torch.where(weight > 0.3, weight, 0.0), v)


def lambda_convolution(q, k, v, e):
    weights = k.exp() / k.exp().sum(2, keepdim=True)
    return torch.einsum("bhik,bhjk,bhjv->bhiv", q, weights, v) + torch.einsum("bhik,kij,bhjv->bhiv", q, e, v)


def relational(q, k, v, p, h1, h2, g):
    kernel = torch.einsum("bhic,cij->bhij", q, p)
    kernel = kernel + torch.einsum("bhic,bhnc,cdin,dij->bhij", q, k, h1, h2)
    context = v[:, :, None] + torch.einsum("bhjv,bhnv,win->bhijw", v, v, g)
    return torch.einsum("bhij,bhijv->bhiv", kernel, context)


def structure_aware(q, k, v, r_a, r_b, bias, bias_a):
    encode = "bhic,bhnc,din->bhid" if r_a.ndim == 3 else "bhic,bhnc,cdin->bhid"
    pattern = torch.einsum(encode, q, k, r_a) + torch.einsum("bhic,cd->bhid", q, bias_a)
    return torch.einsum("bhid,dij,bhjv->bhiv", pattern, r_b, v) + torch.einsum("bhid,vd->bhiv", pattern, bias)


def global_filter(x, taps):
    return torch.einsum("cij,bcj->bci", ops.circulant(taps, taps.shape[1:]), x.flatten(2)).view(x.shape)


def filtered(x, taps):
    return ops.global_filter(x, torch.fft.rfftn(taps, dim=tuple(range(1, taps.ndim))))


def lisa(q, k, v, kernel_a, kernel_b, bias, bias_a):
    grid = q.shape[3:]
    tokens = [t.flatten(3).transpose(2, 3) for t in (q, k, v)]
    y = structure_aware(*tokens, ops.circulant(kernel_a, grid), ops.circulant(kernel_b, grid), bias, bias_a)
    return y.transpose(2, 3).unflatten(3, grid)


TOKENS = ("bhnd",) * 3
MAPS = ("bhdg",) * 3
LISA = (*MAPS, "dDg", "Dg", "dD", "dD")
# operator, formula, the shapes of the arguments
OPERATORS = {
    "focused_linear": (ops.focused_linear, focused_linear, (*TOKENS, "hd")),
    "focused_linear-p1": (partial(ops.focused_linear, focusing_factor=1), relu_linear, TOKENS),
    "hydra": (ops.hydra, hydra, TOKENS),
    "efficient": (ops.efficient, efficient, TOKENS),
    "linear_angular": (ops.linear_angular, linear_angular, TOKENS),
    "masked_softmax": (lambda *x: ops.masked_softmax(*x, 0.3)[0], masked_softmax, TOKENS),
    "softmax": (lambda *x: ops.masked_softmax(*x, 0.0)[0], F.scaled_dot_product_attention, TOKENS),
    "interactive_softmax": (ops.interactive_softmax, F.scaled_dot_product_attention, TOKENS),
    "cosine": (ops.cosine_attention, lambda q, k, v: attend(products(q / length(q, 3), k / length(k, 3)), v), TOKENS),
    "mean_centered": (ops.mean_centered_attention, mean_centered, TOKENS),
    "mean_centered-channels": (
        partial(ops.mean_centered_attention, axis="channels"),
        partial(mean_centered, axis=3),
        TOKENS,
    ),
    "relu_softmax": (ops.relu_softmax_attention, lambda q, k, v: relu_sum(q, k, v) / q.shape[2], TOKENS),
    "relu_softmax-sum": (partial(ops.relu_softmax_attention, average=False), relu_sum, TOKENS),
    "relu_exp": (ops.relu_exp_attention, relu_exp, TOKENS),
    "lambda_convolution": (ops.lambda_convolution, lambda_convolution, (*TOKENS, "dnn")),
    "relational": (ops.relational, relational, (*TOKENS, "dnn", "dDnn", "Dnn", "dnn")),
    "weighted": (ops.weighted_attention, lambda q, k, v, r: attend(products(q, k) * r, v), (*TOKENS, "hnn")),
    "structure_aware-dot": (ops.structure_aware, structure_aware, (*TOKENS, "Dnn", "Dnn", "dD", "dD")),
    "structure_aware-hadamard": (ops.structure_aware, structure_aware, (*TOKENS, "dDnn", "Dnn", "dD", "dD")),
    "global_filter": (filtered, global_filter, ("bdg", "dg")),
}
for name in ("focused_linear", "hydra", "efficient", "linear_angular"):
    OPERATORS[f"{name}-reference"] = (partial(OPERATORS[name][0], backend="reference"), *OPERATORS[name][1:])
for name in ("auto", "reference", "fft", "circulant", "dft", "rows"):
    OPERATORS[f"lisa-{name}"] = (partial(ops.lisa, backend=name), lisa, LISA)


def test_the_result_has_the_dtype_of_the_value():
    """In half precision, with parameters in fp32, and under autocast; computed in fp32, so that it is one rounding off."""
    generator = torch.Generator().manual_seed(0)
    for name, (operator, _, shapes) in OPERATORS.items():
        inputs = [draw(shape, sizes("plain"), generator).detach().float() for shape in shapes]
        tokens = sum(shape in (*TOKENS, *MAPS) for shape in shapes) or 1
        half = [x.bfloat16() if i < tokens else x for i, x in enumerate(inputs)]
        with torch.autocast("cpu", dtype=torch.float16):
            y = operator(*half)
        assert y.dtype == torch.bfloat16, name
        expected = operator(*(x.float() for x in half))
        assert expected.dtype == torch.float32, name
        assert (y.float() - expected).norm() < 0.01 * expected.norm(), name


def sizes(case: str) -> dict[str, tuple[int, ...]]:
    batch, heads, width, patterns, grid = SHAPES[case]
    return {"b": (batch,), "h": (heads,), "d": (width,), "D": (patterns,), "n": (grid[0] * grid[1],), "g": grid}


@pytest.mark.parametrize("case", SHAPES)
@pytest.mark.parametrize("name", OPERATORS)
def test_value_and_gradients(name, case):
    operator, formula, shapes = OPERATORS[name]
    generator = torch.Generator().manual_seed(1)
    assert_equal(operator, formula, [draw(shape, sizes(case), generator) for shape in shapes], generator)
