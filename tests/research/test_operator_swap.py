"""What a host's weights are worth: the network starts with them, and means are over the seeds."""

import torch

from research import operator_swap
from research.operator_swap import Swap, demo_splits, run_swap, to_markdown


def test_the_network_starts_from_the_trained_host(monkeypatch):
    starts = []
    fit = operator_swap._fit

    def record(model, *args):
        result = fit(model, *args)
        starts.append(model)
        return result

    monkeypatch.setattr(operator_swap, "_fit", record)
    monkeypatch.setattr(operator_swap, "_RATE", 0.0)  # so that a network ends as it started
    train, test = demo_splits(dict(train=1, val=1))
    assert train[0].shape == (8, 3, 32, 32)
    swap = run_swap(train, test, iterations=3, every=1, seed=0)
    assert [list(column) for column in (swap.host, swap.scratch, swap.swapped)] == [[*range(7)], [*range(4)], [0, 1]]
    host, scratch, swapped = starts
    weights = host.layers[3].blocks[0].mlp.fc1.weight
    assert torch.equal(swapped.backbone.stages[3].blocks[0].mlp.fc1.weight, weights)
    assert not torch.equal(scratch.backbone.stages[3].blocks[0].mlp.fc1.weight, weights)
    assert torch.equal(swapped.head.weight, host.head.fc.weight)


def test_table():
    swaps = [Swap({0: 10.0, 6: 50.0}, {0: 10.0, 3: 60.0}, {0: 40.0, 1: 70.0 + 10 * i}) for i in range(2)]
    table = to_markdown(swaps)
    assert "| 1 |  |  | 75.0 |" in table
    assert "| 3 |  | 60.0 |  |" in table
    assert "From scratch 60.0% after 3 iterations; from the host 40.0% before the first one and 75.0% after 1." in table
