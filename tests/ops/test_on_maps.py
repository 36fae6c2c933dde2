"""Operators that know where a token lies, each against its formula written out, in fp64: the value and all gradients."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from helpers.formulas import assert_equal, draw, products
from helpers.written_out import turned
from mmlisa import ops

GRIDS = [(5, 9), (7, 12), (1, 1)]
HEADS, WIDTH = 3, 8


def turned_together(x: Tensor, grid: tuple[int, int]) -> Tensor:
    """The heads ``[B, h, N, d]`` of a token side by side."""
    return turned(x.transpose(1, 2).flatten(2), grid).unflatten(2, (HEADS, -1)).transpose(1, 2)


def phi(x: Tensor) -> Tensor:
    return torch.where(x > 0, x + 1, x.exp())


def mila(q, k, v, grid):
    q, k, n = phi(q), phi(k), q.shape[2]
    weights = products(turned_together(q, grid), turned_together(k, grid)) / n
    return weights / (products(q, k).sum(3, keepdim=True) / n + 1e-6) @ v


def rala(q, k, v, grid):
    q, k, n = phi(q), phi(k), q.shape[2]
    alpha = n * torch.softmax(torch.einsum("bhd,bhjd->bhj", q.mean(2), k) / WIDTH**0.5, dim=2)
    weights = products(turned(q, grid), turned(alpha[..., None] * k, grid)) / n
    return weights / ((products(q, k) * alpha[:, :, None]).mean(3, keepdim=True) + 1e-6) @ v


def mala(q, k, v, grid):
    q, k, n = phi(q), phi(k), q.shape[2]
    scale = 1 / (n * WIDTH**0.5)
    total = scale * products(q, k).sum(3, keepdim=True)
    weights = (1 + 1 / (total + 1e-6)) * scale * products(turned(q, grid), turned(k, grid)) - total / n
    return weights @ v


def inline(q, k, v, grid):
    n = q.shape[2]
    similarity = products(q, k) / (n * WIDTH**0.5)
    weights = similarity - similarity.sum(3, keepdim=True) / n + 1 / n
    torch.testing.assert_close(weights.sum(3), torch.ones_like(weights.sum(3)))
    return weights @ v


def polarity_aware(q, k, v, power, scale, grid):
    exponent = (1 + 4 / (1 + (-power).exp()))[:, None]
    q, k = (t / torch.log(1 + scale.exp())[:, None] for t in (q, k))
    positive_q, positive_k = (t.clamp(min=0) ** exponent for t in (q, k))
    negative_q, negative_k = ((-t).clamp(min=0) ** exponent for t in (q, k))
    same = products(positive_q, positive_k) + products(negative_q, negative_k)
    opposite = products(positive_q, negative_k) + products(negative_q, positive_k)
    same, opposite = (w / (w.sum(3, keepdim=True) + q.shape[2] * 1e-6) for w in (same, opposite))
    return torch.cat([same @ v[..., : WIDTH // 2], opposite @ v[..., WIDTH // 2 :]], dim=3)


def agent(q, k, v, a, gather, spread, grid):
    gathered = torch.softmax(products(a, k) / WIDTH**0.5 + gather, dim=3) @ v
    return torch.softmax(products(q, a) / WIDTH**0.5 + spread, dim=3) @ gathered


def ttt_glu(q, k, v, w1, w2, grid):
    """A step of gradient descent for each image and head by itself."""
    y = torch.empty_like(q)
    for image in range(len(q)):
        for head in range(HEADS):
            first, second = (w[head].clone() for w in (w1, w2))
            z = k[image, head] @ second
            loss = -(k[image, head] @ first * z * z.sigmoid() * v[image, head]).sum() / (3 * q.shape[2])
            gradients = torch.autograd.grad(loss, [first, second], create_graph=True)
            first, second = (
                w - g / (g.square().sum(0) ** 0.5 + 1) for w, g in zip((first, second), gradients, strict=True)
            )
            z = q[image, head] @ second
            y[image, head] = q[image, head] @ first * z * z.sigmoid()
    return y


def ttt_convolution(q, k, v, w3, grid):
    """A step of gradient descent for each image and channel by itself."""
    y = torch.empty_like(q)
    for image in range(len(q)):
        for channel in range(q.shape[1]):
            kernel = w3[channel : channel + 1].clone()
            loss = -(F.conv2d(k[image, channel][None, None], kernel, padding=1) * v[image, channel]).sum()
            (gradient,) = torch.autograd.grad(loss / (3 * grid[0] * grid[1]), kernel, create_graph=True)
            kernel = kernel - gradient / (gradient.square().sum() ** 0.5 + 1)
            y[image, channel] = F.conv2d(q[image, channel][None, None], kernel, padding=1)[0, 0]
    return y


def depthwise_per_image(x, kernels, grid):
    return F.conv2d(x.flatten(0, 1)[None], kernels.reshape(-1, 1, 3, 3), padding=1, groups=len(x) * x.shape[1]).view(
        x.shape
    )


def gridless(operator):
    return lambda *inputs, grid, **options: operator(*inputs, **options)


TOKENS, MAPS = ("bhnd",) * 3, ("bdg",) * 3
# operator, formula, the shapes of the arguments, whether it has a reference
OPERATORS = {
    "mila": (ops.mila, mila, TOKENS, True),
    "rala": (ops.rala, rala, TOKENS, True),
    "mala": (ops.mala, mala, TOKENS, True),
    "inline": (gridless(ops.inline), inline, TOKENS, True),
    "polarity_aware": (gridless(ops.polarity_aware), polarity_aware, (*TOKENS, "hd", "hd"), True),
    "agent": (gridless(ops.agent), agent, (*TOKENS, "bhad", "han", "hna"), True),
    "ttt_glu": (gridless(ops.ttt_glu), ttt_glu, (*TOKENS, "hdd", "hdd"), True),
    "ttt_convolution": (gridless(ops.ttt_convolution), ttt_convolution, (*MAPS, "d133"), True),
    "rotary": (lambda x, grid: ops.rotary(x, grid), turned, ("bnd",), False),
    "depthwise_per_image": (gridless(ops.depthwise_per_image), depthwise_per_image, ("bdg", "bd9"), False),
}


def inputs(shapes: tuple[str, ...], grid: tuple[int, int], generator: torch.Generator) -> list[Tensor]:
    sizes = {"b": (2,), "h": (HEADS,), "d": (WIDTH,), "n": (grid[0] * grid[1],), "a": (4,), "g": grid}
    sizes |= {digit: (int(digit),) for digit in "139"}
    return [draw(shape, sizes, generator) for shape in shapes]


@pytest.mark.parametrize("grid", GRIDS, ids=lambda grid: "{}x{}".format(*grid))
@pytest.mark.parametrize("backend", ["auto", "reference"])
@pytest.mark.parametrize("name", OPERATORS)
def test_value_and_gradients(name, backend, grid):
    operator, formula, shapes, has_reference = OPERATORS[name]
    if backend == "reference" and not has_reference:
        pytest.skip("has no other form")
    generator, options = torch.Generator().manual_seed(1), dict(backend=backend) if has_reference else {}
    forms = partial(operator, grid=grid, **options), partial(formula, grid=grid)
    assert assert_equal(*forms, inputs(shapes, grid, generator), generator).abs().max() > 1e-2


def test_rotary_of_prefix_tokens_and_channels():
    x = torch.randn(2, 1 + 5 * 9, 8)
    y = ops.rotary(x, (5, 9))
    assert torch.equal(y[:, 0], x[:, 0])
    torch.testing.assert_close(y[:, 1:], ops.rotary(x[:, 1:], (5, 9)))
    assert not torch.allclose(y[:, 2:], x[:, 2:], atol=0.1)
    with pytest.raises(ValueError, match="multiple of 4 channels, got 6"):
        ops.rotary(torch.randn(1, 45, 6), (5, 9))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rotary_counts_far_positions_in_any_precision(dtype):
    """bf16 has no 257. Each column of a wide map has an angle of its own."""
    x = torch.randn(1, 1 * 600, 4).to(dtype)
    expected = ops.rotary(x.double(), (1, 600))
    assert (ops.rotary(x, (1, 600)) - expected).norm() < torch.finfo(dtype).eps * expected.norm()


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_powers_of_any_size_are_finite(scale):
    """Plain powers of 5 leave the range of fp32 at 5e7 and vanish at 1e-9; the quotient of two does neither."""
    drawn = inputs((*TOKENS, "hd", "hd"), (5, 9), torch.Generator().manual_seed(1))
    leaves = [t.detach().float().requires_grad_() for t in drawn]
    scaled = [t * s for t, s in zip(leaves, (scale * 1e5, scale * 1e5, 1, 9, 1), strict=True)]
    y = ops.polarity_aware(*scaled)
    y.square().sum().backward()
    assert y.isfinite().all()
    assert all(t.grad.isfinite().all() for t in leaves)
    assert y.std() > 0.1


def test_large_tokens_of_one_sign_are_finite():
    """No pair has opposite signs then, and epsilon over the powers is zero in fp32."""
    q = torch.full((1, 2, 6, 4), 1e4, requires_grad=True)
    y = ops.polarity_aware(q, q, torch.randn(1, 2, 6, 4), torch.full((2, 4), 9.0), torch.ones(2, 4))
    y.sum().backward()
    assert y.isfinite().all()
    assert q.grad.isfinite().all()


def test_shapes_that_do_not_fit():
    q = torch.randn(1, 2, 6, 4)
    with pytest.raises(ValueError, match="one shape"):
        ops.mila(q, q[:, :, :5], q, (2, 3))
    with pytest.raises(ValueError, match="power"):
        ops.polarity_aware(q, q, q, torch.zeros(1, 4), torch.zeros(2, 4))
