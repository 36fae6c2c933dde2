"""The effect of padding, against closed forms."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from mmlisa.export.padding import padding_effect


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
