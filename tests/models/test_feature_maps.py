from pathlib import Path

import pytest
from torch import nn

import mmlisa
from channels import to_markdown


def test_channels_and_strides_for_a_neck():
    assert mmlisa.channels("LiSANet", "hybrid-small") == [64, 128, 320, 384]
    assert mmlisa.channels("mmlisa.LiSANet", "hybrid-small", (1, -1)) == [128, 384]
    assert mmlisa.strides("CastlingLeViT", "128", (0, 2)) == [16, 64]
    assert mmlisa.channels("LiSANet", dict(base="small", channels=(8, 16, 40, 48)), (3,)) == [48]


def test_nothing_is_allocated(monkeypatch):
    devices = set()
    monkeypatch.setattr(nn.Linear, "__init__", _watch(nn.Linear.__init__, devices))
    assert mmlisa.channels("FLattenSwin", "base", (3,)) == [1024]
    assert devices == {"meta"}


def _watch(init, devices):
    def watched(self, *args, **kwargs):
        init(self, *args, **kwargs)
        devices.add(self.weight.device.type)

    return watched


@pytest.mark.nightly
def test_page_is_current():
    page = Path(__file__).parents[2] / "docs" / "channels.md"
    assert page.read_text() == to_markdown(), "python tools/channels.py"


def test_unknown_backbone():
    with pytest.raises(ValueError, match=r"backbone is 'LisaNet'; it must be one of .*'LiSANet'"):
        mmlisa.channels("LisaNet")
