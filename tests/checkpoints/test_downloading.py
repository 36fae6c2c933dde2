"""Checkpoints from addresses, which PyTorch downloads; a copied file stands in for the server."""

import shutil
from urllib.error import URLError

import pytest
import torch
from mmengine.runner import checkpoint

from mmlisa.checkpoints import download, read_checkpoint

URL = "https://host/a/model.pth?v=1.2"


@pytest.fixture
def downloads(tmp_path, monkeypatch):
    """The addresses and checksums that PyTorch's function is called with."""
    calls = []
    torch.save({"a": torch.ones(2)}, tmp_path / "served.pth")

    def copy(url, target, checksum):
        calls.append((url, checksum))
        shutil.copy(tmp_path / "served.pth", target)

    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))
    monkeypatch.setattr(torch.hub, "download_url_to_file", copy)
    return calls


def test_an_address_is_downloaded_once_and_read(downloads):
    for _ in range(2):
        assert read_checkpoint(URL)["a"].tolist() == [1, 1]
    assert downloads == [(URL, None)]
    assert download("https://host/b/model.pth") != download(URL)


def test_names_of_mmengines_lists(downloads, monkeypatch):
    monkeypatch.setattr(checkpoint, "get_external_models", lambda: {"net": "https://host/net-0123abcd.pth"})
    read_checkpoint("open-mmlab://net")
    assert downloads == [("https://host/net-0123abcd.pth", "0123abcd")]
    for unknown in ("open-mmlab://nett", "s3://bucket/net.pth"):
        with pytest.raises(ValueError, match=f"source='{unknown}'"):
            download(unknown)


@pytest.mark.parametrize(
    ("name", "checksum"), [("net_20210514-0123abcd", "0123abcd"), ("net-20240115", None), ("net-deadbee", None)]
)
def test_the_checksum_in_a_name_is_compared(downloads, name, checksum):
    download(f"https://host/{name}.pth#part")
    assert downloads[0][1] == checksum


def test_a_failed_download_names_the_source(downloads, monkeypatch):
    def fail(*_):
        raise URLError("no route")

    monkeypatch.setattr(torch.hub, "download_url_to_file", fail)
    with pytest.raises(ConnectionError, match="source='https://host/a/"):
        download(URL)
