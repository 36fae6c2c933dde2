"""The operator's options, and its cost."""

import pytest
import torch

from mmlisa.complexity import count
from mmlisa.models.attention.interactive import InteractiveAttention


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (dict(), {"query_before", "query_after", "key_before", "key_after"}),
        (dict(mix_before=False), {"query_after", "key_after"}),
        (dict(mix_after=False), {"query_before", "key_before"}),
        (dict(mix_before=False, mix_after=False), set()),
        (dict(landmarks=None), {"query_before", "query_after"}),
    ],
)
def test_mixing_is_switchable(options, names):
    """Table 8's rows. Every matrix that is there starts as the identity and changes the output."""
    torch.manual_seed(0)
    operator = InteractiveAttention(16, 4, grid=(5, 6), **dict(dict(landmarks=9), **options)).double()
    mixings = {n.removeprefix("mix_"): p for n, p in operator.named_parameters() if n.startswith("mix_")}
    assert set(mixings) == names
    x = torch.randn(1, 30, 16, dtype=torch.float64)
    before = operator(x, (5, 6))
    for matrix in mixings.values():
        assert torch.equal(matrix, torch.eye(4, dtype=torch.float64))
        with torch.no_grad():
            matrix[0, 1] = 1.0
        after = operator(x, (5, 6))
        assert not torch.allclose(before, after)
        before = after


@pytest.mark.parametrize("tokens", [50, 200])
def test_macs_are_those_of_the_formula(tokens):
    """4 N L C + 4 N L h² + 4 N C²."""
    with torch.device("meta"):
        operator = InteractiveAttention(64, 4, grid=(7, 7), landmarks=49)
        x = torch.empty(1, 10 * tokens, 64)
    n = 10 * tokens
    assert count(operator, x, (10, tokens)).macs == 4 * n * 49 * 64 + 4 * n * 49 * 16 + 4 * n * 64**2
