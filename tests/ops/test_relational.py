"""Both operators against their formulas, with the matrices and contexts that they define formed in full."""

import torch

from mmlisa import ops

B, H, N, C, D = 2, 3, 6, 4, 5


def randn(*shape):
    return torch.randn(*shape, dtype=torch.double)


def test_lambda_convolution():
    query, key, value, relative = randn(B, H, N, C), randn(B, H, N, C), randn(B, H, N, C), randn(C, N, N)
    weights = key.softmax(dim=2)
    for i in range(N):
        matrix = torch.einsum("bhjk,bhjv->bhkv", weights + relative[:, i].T, value)
        expected = torch.einsum("bhk,bhkv->bhv", query[:, :, i], matrix)
        torch.testing.assert_close(ops.lambda_convolution(query, key, value, relative)[:, :, i], expected)


def test_relational():
    query, key, value = randn(3, B, H, N, C).unbind()
    basic, encode, decode, context = randn(C, N, N), randn(C, D, N, N), randn(D, N, N), randn(C, N, N)
    actual = ops.relational(query, key, value, basic, encode, decode, context)
    for i in range(N):
        relation = query[:, :, i, None] * key
        dynamic = torch.einsum("bhnc,cdn,dj->bhj", relation, encode[:, :, i], decode[:, i])
        kernel = torch.einsum("bhc,cj->bhj", query[:, :, i], basic[:, i]) + dynamic
        relational_context = value @ value.transpose(-1, -2) @ context[:, i].T
        expected = torch.einsum("bhj,bhjv->bhv", kernel, value + relational_context)
        torch.testing.assert_close(actual[:, :, i], expected)
