"""Comparison of files with their models, and the effect of padding."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from mmlisa.errors import UserError
from mmlisa.export.compare import Follower, compare, difference, padding_effect
from mmlisa.export.whole import EndToEnd

VALUES = torch.randn(1, 4, 8, 16, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("wrong", [torch.nan, torch.inf, VALUES.double(), VALUES[..., :-1]])
@pytest.mark.parametrize("exact", [False, True])
def test_what_cannot_be_compared_is_infinitely_apart(wrong, exact):
    found = wrong if isinstance(wrong, torch.Tensor) else VALUES.index_fill(3, torch.tensor(5), wrong)
    assert difference(VALUES, found, exact) == difference(found, VALUES, exact) == torch.inf
    assert difference(found, found, exact) == (0 if isinstance(wrong, torch.Tensor) else torch.inf), (
        "a NaN hides what was meant"
    )


def test_a_large_channel_does_not_hide_the_error_of_a_small_one():
    found = VALUES.clone()
    found[:, 1] += 0.01
    assert (
        0.005 < difference(VALUES, found) < 0.01
    )  # a tenth of a normal distribution is more than 1.64 from its median
    scale = torch.tensor([1000.0, 1, 1, 1])[:, None, None]
    assert difference(VALUES * scale, found * scale) > 0.001
    offset = torch.tensor([1000.0, 0, 0, 0])[:, None, None]
    assert difference(VALUES + offset, found + offset) > 0.001


@pytest.mark.parametrize("usual", [VALUES, 0 * VALUES, VALUES[:, :1] + 7, VALUES[0, 0, 0]])
def test_a_large_value_does_not_hide_the_errors_of_the_others(usual):
    expected = usual.clone()
    expected.view(-1)[0] = 1e6
    found = expected.clone()
    found.view(-1)[0] += 1  # rounding of a large value
    assert difference(expected, found) < 1e-5
    found.view(-1)[5] += 0.1
    assert difference(expected, found) > 0.01


def test_values_behind_relu_may_differ_by_rounding():
    values = VALUES.sub(0.5).relu()
    assert difference(values, torch.where(values > 0, values + 1e-6, 0)) < 1e-3


def test_exact_values_may_differ_by_rounding_only():
    boxes = torch.tensor([[0.0, 0, 300, 200], [10, 10, 20, 20]])
    assert difference(boxes, boxes * (1 + 1e-6), exact=True) < 1e-5
    assert difference(boxes, boxes + torch.tensor([[0.0], [0.001]]), exact=True) > 1e-5
    assert difference(torch.tensor([1, 2]), torch.tensor([2, 1]), exact=True) == torch.inf


class Detector(EndToEnd):
    """Two candidates, of which the thresholds drop some."""

    def __init__(self, scores, masks=0.0):
        nn.Module.__init__(self)
        self.task, self.preprocess, self.outputs = (
            "detection",
            SimpleNamespace(uint8=False),
            ("boxes", "scores", "labels"),
        )
        self.thresholds, self.scores = torch.tensor([0.5, -1.0]), torch.tensor(scores)

    def predict(self, image, cut, thresholds=None, limits=None):
        scores = cut(self.scores)
        index = (scores > (self.thresholds if thresholds is None else thresholds)[0]).nonzero()[:, 0]
        return torch.arange(8.0).view(2, 4)[index], scores[index], index


@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("scores", [(0.9, 0.8), (0.2, 0.1)])
def test_each_result_is_compared_also_where_nothing_passes_the_threshold(part, scores):
    model, calls = Detector(scores), []

    def run(image, thresholds):
        calls.append(thresholds)
        values = [*model.predict(image, lambda x: x, thresholds), model.scores]
        if wrong and len(values[part]):
            values[part] = values[part] + 1
        return values

    wrong = False
    assert compare(model, run, None, 1e-3) == 0
    assert (calls[-1] is None) if scores[0] > 0.5 else (calls[-1][0] == -1)
    wrong = True
    with pytest.raises(ValueError, match="differs"):
        compare(model, run, None, 1e-3)


def test_nothing_detected_proves_nothing():
    model = Detector(())
    with pytest.raises(ValueError, match="nothing is detected"):
        compare(model, lambda image, thresholds: list(model.named_outputs(image).values()), None, 1e-3)


def test_the_model_goes_on_with_the_values_of_the_file():
    """Two scores of which rounding makes the second one better."""
    model = Detector((0.9, 0.9))
    follow = Follower([torch.tensor([0.9, 0.9000001])], 1e-3)
    assert torch.equal(model.predict(None, follow)[1], torch.tensor([0.9, 0.9000001]))
    with pytest.raises(ValueError, match="differs"):
        follow(VALUES)  # the file has fewer values


@pytest.mark.parametrize("results", [(), (VALUES[:, :0],)])
def test_a_network_without_values_is_refused(results):
    network = SimpleNamespace(predict=lambda image, follow, thresholds: results)
    with pytest.raises(UserError, match="no values"):
        compare(network, lambda image, thresholds: results, None, 1e-3)


class Net(nn.Module):
    """Adds ``share`` of the mean of the image to each pixel."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share, self.seen = share, []

    def extract_feat(self, image: torch.Tensor) -> list[torch.Tensor]:
        self.seen.append(image)
        return [image + self.share * image.mean()]


@pytest.mark.parametrize("share", [0.0, 0.7])
def test_the_effect_is_that_of_the_mean(share):
    model = Net(share)
    module = SimpleNamespace(model=model, preprocess=SimpleNamespace(divisor=32, value=0.0))
    size, mean, largest = padding_effect(module, (140, 90))
    alone, padded = model.seen
    assert (size, alone.shape[2:], padded.shape[2:]) == ((64, 90), (64, 96), (160, 96))
    expected = abs(share * (alone.mean() - padded.mean())) / (alone.max() - alone.min())
    assert mean == pytest.approx(expected.item(), abs=1e-6)
    assert largest == pytest.approx(expected.item(), abs=1e-6)
    assert (largest > 1e-3) == (share > 0)
