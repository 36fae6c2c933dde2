"""Every operator against its formula written out, in fp64: the value and all gradients, on the shapes that break things."""

from functools import partial
from inspect import signature
from math import pi

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from helpers.formulas import assert_equal, draw, products
from helpers.written_out import turned
from mmlisa import ops
from mmlisa.ops.circular import BACKENDS

# B, h, d, D, grid: a prime number of tokens, a single token, one head, heads of one channel, one pattern; grids of one and three
# axes, and one beyond the circulant form
SHAPES = {
    "plain": (2, 3, 4, 3, (3, 4)),
    "row": (1, 2, 3, 2, (1, 6)),
    "column": (1, 2, 3, 2, (6, 1)),
    "prime": (2, 2, 4, 3, (1, 7)),
    "single-token": (2, 2, 4, 2, (1, 1)),
    "one-head": (1, 1, 4, 2, (2, 3)),
    "one-channel": (1, 3, 1, 2, (2, 3)),
    "one-pattern": (2, 2, 3, 1, (2, 3)),
    "map": (2, 3, 8, 3, (5, 9)),
    "line": (2, 2, 3, 2, (17,)),
    "video": (1, 2, 4, 3, (2, 5, 4)),
    "large": (1, 2, 4, 5, (16, 9)),
}


def sizes(case: str) -> dict[str, tuple[int, ...]]:
    batch, heads, width, patterns, grid = SHAPES[case]
    tokens = {"n": (torch.Size(grid).numel(),), "g": grid, "a": (4,), **{digit: (int(digit),) for digit in "139"}}
    return {"b": (batch,), "h": (heads,), "d": (width,), "D": (patterns,), **tokens}


def focus(t: Tensor, scale: Tensor, p: float) -> Tensor:
    """FLatten's Eq. 6, the channels of all heads of a token together."""
    t = (t.clamp(min=0) + 1e-6) / torch.log(1 + scale.exp())[:, None]
    power = t**p
    return power * (t.square().sum((1, 3), True) / power.square().sum((1, 3), True)).sqrt()


def attend(weight: Tensor, value: Tensor) -> Tensor:
    return torch.einsum("bhij,bhjd->bhid", weight, value)


def softmax(query: Tensor, key: Tensor, bias: Tensor | float = 0) -> Tensor:
    return torch.softmax(products(query, key) / query.shape[3] ** 0.5 + bias, dim=3)


def rectified(query: Tensor, key: Tensor) -> Tensor:
    return products(query.clamp(min=0), key.clamp(min=0))


def centred(t: Tensor) -> Tensor:
    return t - t.sum(2, keepdim=True) / t.shape[2]


def length(t: Tensor, axes) -> Tensor:
    return t.square().sum(axes, keepdim=True).sqrt()


def phi(x: Tensor) -> Tensor:
    return torch.where(x > 0, x + 1, x.exp())


def turned_together(x: Tensor, grid: tuple[int, int]) -> Tensor:
    """The heads ``[B, h, N, d]`` of a token side by side."""
    return turned(x.transpose(1, 2).flatten(2), grid).unflatten(2, (x.shape[1], -1)).transpose(1, 2)


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


def cosine(q, k, v):
    return attend(products(q / length(q, 3), k / length(k, 3)), v)


def mean_centered(q, k, v):
    return attend(products(centred(q), centred(k)), v) / (q.shape[2] * q.shape[3] ** 0.5)


def relu_exp(q, k, v):
    weight = rectified(q, k)
    return attend(weight, v) / (weight.sum(3, keepdim=True) + 1e-6)


def masked_softmax(q, k, v):
    weight = softmax(q, k)
    return attend(torch.where(weight > 0.3, weight, 0.0), v)


def lambda_convolution(q, k, v, e):
    weights = k.exp() / k.exp().sum(2, keepdim=True)
    return torch.einsum("bhik,bhjk,bhjv->bhiv", q, weights, v) + torch.einsum("bhik,kij,bhjv->bhiv", q, e, v)


def relational(q, k, v, p, h1, h2, g):
    kernel = torch.einsum("bhic,cij->bhij", q, p)
    kernel = kernel + torch.einsum("bhic,bhnc,cdin,dij->bhij", q, k, h1, h2)
    context = v[:, :, None] + torch.einsum("bhjv,bhnv,win->bhijw", v, v, g)
    return torch.einsum("bhij,bhijv->bhiv", kernel, context)


def structure_aware(q, k, v, r_a, r_b, bias, bias_a=None):
    encode = "bhic,bhnc,din->bhid" if r_a.ndim == 3 else "bhic,bhnc,cdin->bhid"
    pattern = torch.einsum(encode, q, k, r_a)
    if bias_a is not None:
        pattern = pattern + torch.einsum("bhic,cd->bhid", q, bias_a)
    return torch.einsum("bhid,dij,bhjv->bhiv", pattern, r_b, v) + torch.einsum("bhid,vd->bhiv", pattern, bias)


def lisa(q, k, v, kernel_a, kernel_b, *biases):
    grid = q.shape[3:]
    tokens = [t.flatten(3).transpose(2, 3) for t in (q, k, v)]
    y = structure_aware(*tokens, ops.circulant(kernel_a, grid), ops.circulant(kernel_b, grid), *biases)
    return y.transpose(2, 3).unflatten(3, grid)


def global_filter(x, taps):
    return torch.einsum("cij,bcj->bci", ops.circulant(taps, taps.shape[1:]), x.flatten(2)).view(x.shape)


def filtered(x, taps):
    return ops.global_filter(x, torch.fft.rfftn(taps, dim=tuple(range(1, taps.ndim))))


def mila(q, k, v, grid):
    q, k, n = phi(q), phi(k), q.shape[2]
    weights = products(turned_together(q, grid), turned_together(k, grid)) / n
    return weights / (products(q, k).sum(3, keepdim=True) / n + 1e-6) @ v


def rala(q, k, v, grid):
    q, k, n = phi(q), phi(k), q.shape[2]
    alpha = n * torch.softmax(torch.einsum("bhd,bhjd->bhj", q.mean(2), k) / q.shape[3] ** 0.5, dim=2)
    weights = products(turned(q, grid), turned(alpha[..., None] * k, grid)) / n
    return weights / ((products(q, k) * alpha[:, :, None]).mean(3, keepdim=True) + 1e-6) @ v


def mala(q, k, v, grid):
    q, k, n = phi(q), phi(k), q.shape[2]
    scale = 1 / (n * q.shape[3] ** 0.5)
    total = scale * products(q, k).sum(3, keepdim=True)
    weights = (1 + 1 / (total + 1e-6)) * scale * products(turned(q, grid), turned(k, grid)) - total / n
    return weights @ v


def inline(q, k, v):
    n = q.shape[2]
    similarity = products(q, k) / (n * q.shape[3] ** 0.5)
    return (similarity - similarity.sum(3, keepdim=True) / n + 1 / n) @ v


def polarity_aware(q, k, v, power, scale):
    exponent = (1 + 4 / (1 + (-power).exp()))[:, None]
    q, k = (t / torch.log(1 + scale.exp())[:, None] for t in (q, k))
    positive_q, positive_k = (t.clamp(min=0) ** exponent for t in (q, k))
    negative_q, negative_k = ((-t).clamp(min=0) ** exponent for t in (q, k))
    same = products(positive_q, positive_k) + products(negative_q, negative_k)
    opposite = products(positive_q, negative_k) + products(negative_q, positive_k)
    same, opposite = (w / (w.sum(3, keepdim=True) + q.shape[2] * 1e-6) for w in (same, opposite))
    half = v.shape[3] // 2
    return torch.cat([same @ v[..., :half], opposite @ v[..., half:]], dim=3)


def agent(q, k, v, a, gather, spread):
    return softmax(q, a, spread) @ (softmax(a, k, gather) @ v)


def cell_attention(q, k, v, grid):
    """Windows of at most two tokens a side and 2 x 2 cells, one query after the other. Area j of c begins at floor(j n / c)."""
    if max(grid) <= 2:
        return softmax(q, k) @ v
    scale, mean = q.shape[3] ** -0.5, q.mean(2)
    row, column = (index.flatten() for index in torch.meshgrid(*map(torch.arange, grid), indexing="ij"))
    rows, columns = (
        torch.tensor([max(j for j in range(-(-n // 2)) if j * n // -(-n // 2) <= i) for i in index])
        for index, n in zip((row, column), grid, strict=True)
    )
    windows = rows * 100 + columns
    cells = (row >= grid[0] // 2) * 2 + (column >= grid[1] // 2)
    outputs = []
    for i in range(q.shape[2]):
        near = windows == windows[i]
        logits, values = [torch.einsum("bhd,bhjd->bhj", q[:, :, i], k[:, :, near]) * scale], [v[:, :, near]]
        for cell in cells.unique():
            inside = cells == cell
            share = 1 - (inside & near).sum().double() / inside.sum()
            w = torch.softmax(torch.einsum("bhd,bhjd->bhj", mean, k[:, :, inside]) * scale, dim=2)
            cell_key, cell_value = (torch.einsum("bhj,bhjd->bhd", w, t[:, :, inside]) for t in (k, v))
            logits.append(((q[:, :, i] * cell_key).sum(2) * scale - (w * w.log()).sum(2) + share.log())[..., None])
            values.append(cell_value[:, :, None])
        weights = torch.softmax(torch.cat(logits, 2), 2)
        outputs.append(torch.einsum("bhj,bhjd->bhd", weights, torch.cat(values, 2)))
    return torch.stack(outputs, 2)


def interactive(q, k, v, before_q, after_q, before_k, after_k, grid):
    pooled_q, pooled_k = (
        F.adaptive_avg_pool2d(t.mT.unflatten(3, grid).flatten(0, 1), 3).flatten(2).mT.unflatten(0, q.shape[:2])
        for t in (q, k)
    )

    def mixed_softmax(before, after, query, key):
        scores = torch.einsum("gh,bhnm->bgnm", before, products(query, key) / q.shape[3] ** 0.5)
        return torch.einsum("gh,bhnm->bgnm", after, scores.softmax(3))

    return mixed_softmax(before_q, after_q, q, pooled_k) @ (mixed_softmax(before_k, after_k, pooled_q, k) @ v)


def interact(q, k, v, before_q, after_q, before_k, after_k, grid, backend):
    mixing = dict(mix_query=(before_q, after_q), mix_key=(before_k, after_k))
    return ops.interactive(q, k, v, grid, 9, **mixing, backend=backend)


def ttt_glu(q, k, v, w1, w2):
    """A step of gradient descent for each image and head by itself."""

    def unit(x, first, second):
        return (x @ first) * (x @ second) * (x @ second).sigmoid()

    y = torch.empty_like(q)
    for i in np.ndindex(*q.shape[:2]):
        weights = [w[i[1]].clone() for w in (w1, w2)]
        loss = -(unit(k[i], *weights) * v[i]).sum() / (3 * q.shape[2])
        gradients = torch.autograd.grad(loss, weights, create_graph=True)
        y[i] = unit(q[i], *(w - g / (length(g, 0) + 1) for w, g in zip(weights, gradients, strict=True)))
    return y


def ttt_convolution(q, k, v, w3):
    """A step of gradient descent for each image and channel by itself."""
    y = torch.empty_like(q)
    for i in np.ndindex(*q.shape[:2]):
        kernel = w3[i[1]][None].clone()
        loss = -(F.conv2d(k[i][None, None], kernel, padding=1) * v[i]).mean() / 3
        (gradient,) = torch.autograd.grad(loss, kernel, create_graph=True)
        kernel = kernel - gradient / (length(gradient, (0, 1, 2, 3)) + 1)
        y[i] = F.conv2d(q[i][None, None], kernel, padding=1)[0, 0]
    return y


def depthwise_per_image(x, kernels):
    maps, kernels = x.flatten(0, 1)[None], kernels.reshape(-1, 1, 3, 3)
    return F.conv2d(maps, kernels, padding=1, groups=len(kernels)).view(x.shape)


TOKENS = ("bhnd",) * 3
LISA = (*("bhdg",) * 3, "dDg", "Dg", "dD")
# operator, formula, the shapes of the arguments
FORMULAS = {
    "focused_linear": (ops.focused_linear, focused_linear, (*TOKENS, "hd")),
    "focused_linear-p1": (partial(ops.focused_linear, focusing_factor=1), relu_linear, TOKENS),
    "hydra": (ops.hydra, hydra, TOKENS),
    "efficient": (ops.efficient, efficient, TOKENS),
    "linear_angular": (ops.linear_angular, lambda q, k, v: v / 2 + cosine(q, k, v) / pi, TOKENS),
    "masked_softmax": (lambda *x: ops.masked_softmax(*x, 0.3)[0], masked_softmax, TOKENS),
    "softmax": (lambda *x: ops.masked_softmax(*x, 0.0)[0], F.scaled_dot_product_attention, TOKENS),
    "interactive_softmax": (ops.interactive_softmax, F.scaled_dot_product_attention, TOKENS),
    "cosine": (ops.cosine_attention, cosine, TOKENS),
    "mean_centered": (ops.mean_centered_attention, mean_centered, TOKENS),
    "relu_softmax": (ops.relu_softmax_attention, lambda q, k, v: attend(rectified(q, k), v) / q.shape[2], TOKENS),
    "relu_softmax-sum": (
        partial(ops.relu_softmax_attention, average=False),
        lambda q, k, v: attend(rectified(q, k), v),
        TOKENS,
    ),
    "relu_exp": (ops.relu_exp_attention, relu_exp, TOKENS),
    "lambda_convolution": (ops.lambda_convolution, lambda_convolution, (*TOKENS, "dnn")),
    "relational": (ops.relational, relational, (*TOKENS, "dnn", "dDnn", "Dnn", "dnn")),
    "weighted": (ops.weighted_attention, lambda q, k, v, r: attend(products(q, k) * r, v), (*TOKENS, "hnn")),
    "structure_aware-dot": (ops.structure_aware, structure_aware, (*TOKENS, "Dnn", "Dnn", "dD", "dD")),
    "structure_aware-hadamard": (ops.structure_aware, structure_aware, (*TOKENS, "dDnn", "Dnn", "dD")),
    "lisa": (ops.lisa, lisa, LISA),
    "lisa-first-version": (ops.lisa, lisa, (*LISA, "dD")),
    "global_filter": (filtered, global_filter, ("bdg", "dg")),
    "mila": (ops.mila, mila, TOKENS),
    "rala": (ops.rala, rala, TOKENS),
    "mala": (ops.mala, mala, TOKENS),
    "inline": (ops.inline, inline, TOKENS),
    "polarity_aware": (ops.polarity_aware, polarity_aware, (*TOKENS, "hd", "hd")),
    "agent": (ops.agent, agent, (*TOKENS, "bhad", "han", "hna")),
    "cell_attention": (partial(ops.cell_attention, window=2, cells=2), cell_attention, TOKENS),
    "interactive": (interact, interactive, (*TOKENS, *["hh"] * 4)),
    "ttt_glu": (ops.ttt_glu, ttt_glu, (*TOKENS, "hdd", "hdd")),
    "ttt_convolution": (ops.ttt_convolution, ttt_convolution, ("bdg",) * 3 + ("d133",)),
    "rotary": (ops.rotary, turned, ("bnd",)),
    "depthwise_per_image": (ops.depthwise_per_image, depthwise_per_image, ("bdg", "bd9")),
}
# Operators of maps: of how many channels there must be a multiple.
ON_MAPS = dict(
    mila=4,
    rala=4,
    mala=4,
    rotary=4,
    polarity_aware=2,
    cell_attention=1,
    interactive=1,
    ttt_convolution=1,
    depthwise_per_image=1,
)


def backends(name: str) -> tuple[str | None, ...]:
    operator = FORMULAS[name][0]
    has_some = "backend" in signature(operator).parameters
    return BACKENDS if operator is ops.lisa else ("auto", "reference") if has_some else (None,)


def prepare(name: str, backend: str | None, case: str):
    """The operator and its formula as functions of the inputs, and the inputs."""
    operator, formula, shapes = FORMULAS[name]
    grid = {"grid": SHAPES[case][4]} if "grid" in signature(operator).parameters else {}
    generator, options = torch.Generator().manual_seed(1), {"backend": backend} if backend else {}
    inputs = [draw(shape, sizes(case), generator) for shape in shapes]
    return partial(operator, **grid, **options), partial(formula, **grid), inputs, generator


@pytest.mark.parametrize(
    ("name", "backend", "case"),
    [
        (name, backend, case)
        for name in FORMULAS
        for backend in backends(name)
        for case, (_, _, width, _, grid) in SHAPES.items()
        if name not in ON_MAPS or (len(grid) == 2 and width % ON_MAPS[name] == 0)
    ],
)
def test_value_and_gradients(name, backend, case):
    assert_equal(*prepare(name, backend, case))


@pytest.mark.parametrize("name", FORMULAS)
def test_the_result_has_the_dtype_of_the_value(name):
    """In half precision, with parameters in fp32, and under autocast; computed in fp32, so that it is one rounding off."""
    for backend in {*backends(name)} - {"reference"}:
        operator, _, inputs, _ = prepare(name, backend, "plain")
        tokens = sum(shape[0] == "b" for shape in FORMULAS[name][2])
        half = [x.detach().bfloat16() if i < tokens else x.detach().float() for i, x in enumerate(inputs)]
        with torch.autocast("cpu", dtype=torch.float16):
            y = operator(*half)
        assert y.dtype == torch.bfloat16
        expected = operator(*(x.float() for x in half))
        assert expected.dtype == torch.float32
        assert (y.float() - expected).norm() < 0.01 * expected.norm()


def test_shapes_that_do_not_fit():
    """Each operator that checks more names it in its own tests."""
    q = torch.randn(1, 2, 6, 4)
    for operator in (partial(ops.mila, grid=(2, 3)), ops.hydra, ops.inline):
        with pytest.raises(ValueError, match="one shape"):
            operator(q, q[:, :, :5], q)
    with pytest.raises(ValueError, match="as many keys as values"):
        ops.efficient(q, q[:, :, :5], q)
    with pytest.raises(ValueError, match="'no-such'"):
        ops.efficient(q, q, q, backend="no-such")
    with pytest.raises(ValueError, match="power"):
        ops.polarity_aware(q, q, q, torch.zeros(1, 4), torch.zeros(2, 4))
    with pytest.raises(ValueError, match="multiple of 4 channels, got 6"):
        ops.rotary(torch.randn(1, 6, 6), (2, 3))


def test_rotary_leaves_prefix_tokens_as_they_are():
    x = torch.randn(2, 1 + 5 * 9, 8)
    y = ops.rotary(x, (5, 9))
    assert torch.equal(y[:, 0], x[:, 0])
    torch.testing.assert_close(y[:, 1:], ops.rotary(x[:, 1:], (5, 9)))
