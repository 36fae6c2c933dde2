"""When tokens are computed in chunks, and how many at a time."""

import pytest
import torch

from mmlisa.models.layers import set_cpu_chunking
from mmlisa.ops.chunks import CHUNK, chunk_length

# Wide enough for chunks of at most 100 tokens.
WIDTH = CHUNK * torch.get_num_threads() // 100


def test_chunks_are_of_one_size_and_only_in_inference():
    x = torch.randn(2, 15, 25, 3)
    assert chunk_length(x, WIDTH) == 750
    with torch.no_grad():
        assert chunk_length(x, WIDTH) == 94  # 8 chunks, the least number of at most 100 tokens
        assert chunk_length(x, 5) == 750
        assert chunk_length(x.to("meta"), WIDTH) == 750
        assert chunk_length(x[:0], WIDTH) == 0


def test_a_switch_turns_chunks_off():
    x = torch.randn(750, 3)
    set_cpu_chunking(False)
    try:
        with torch.no_grad():
            assert chunk_length(x, WIDTH) == 750
    finally:
        set_cpu_chunking(True)


@pytest.mark.parametrize("exports", [False, True])
def test_a_trace_has_no_chunks(exports):
    class Model(torch.nn.Module):
        def forward(self, x):
            return x + chunk_length(x, WIDTH)

    x = torch.ones(750, 3)
    with torch.no_grad():
        traced = torch.export.export(Model(), (x,)).module() if exports else torch.jit.trace(Model(), (x,))
        assert torch.equal(traced(x), x + 750)
