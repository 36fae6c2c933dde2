"""Checkpoints from addresses, served by this machine: downloaded, checked, and read without running code."""

import contextlib
import hashlib
import io
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
import torch
from mmengine.config import Config
from mmengine.runner import checkpoint as mmengine_checkpoint
from mmengine.runner.checkpoint import CheckpointLoader
from torch import nn

from mmlisa.checkpoints import CheckpointError, fetch_checkpoint, local_file, use_safe_loader
from mmlisa.checkpoints.download import download
from mmlisa.models.backbones import LiSANet
from mmlisa.training.runner import set_resume

ARCH = dict(base="hybrid-small", depths=(1, 1, 1, 1), channels=(8, 16, 16, 16), num_heads=(1, 1, 1, 1))


class Malicious:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.fixture
def server(tmp_path, monkeypatch):
    """Serves ``files``; what is cached goes into a folder of the test."""
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))
    monkeypatch.setattr(CheckpointLoader, "_schemes", dict(CheckpointLoader._schemes))

    class Handler(BaseHTTPRequestHandler):
        files, requests, cut = {}, [], 0

        def do_GET(self):
            self.requests.append(self.path)
            content = self.files.get(self.path)
            self.send_response(200 if content is not None else 404)
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            self.wfile.write((content or b"")[: len(content or b"") - self.cut])

        def log_message(self, *_):
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Handler.address = f"http://127.0.0.1:{httpd.server_port}"
    Thread(target=httpd.serve_forever, daemon=True).start()
    yield Handler
    httpd.shutdown()


def content(checkpoint) -> bytes:
    stream = io.BytesIO()
    torch.save(checkpoint, stream)
    return stream.getvalue()


def addresses(server, monkeypatch):
    """One address of every kind that leads to /model.pth."""
    url = f"{server.address}/model.pth"
    for zoo in ("get_torchvision_models", "get_external_models"):
        monkeypatch.setattr(mmengine_checkpoint, zoo, lambda: {"net": url})
    monkeypatch.setattr(mmengine_checkpoint, "get_deprecated_model_names", lambda: {"old": "net"})
    return [url, "torchvision://net", "modelzoo://net", "openmmlab://net", "open-mmlab://old"]


def test_no_address_runs_code(server, monkeypatch, tmp_path):
    server.files["/model.pth"] = content({"state_dict": Malicious(tmp_path / "ran")})
    use_safe_loader()
    for address in addresses(server, monkeypatch):
        with pytest.raises(CheckpointError, match="could run code"):
            CheckpointLoader.load_checkpoint(address, logger=None)
    assert not (tmp_path / "ran").exists()


def test_every_address_gives_the_weights(server, monkeypatch):
    weight = torch.randn(3)
    server.files["/model.pth"] = content({"state_dict": {"backbone.weight": weight}})
    for address in addresses(server, monkeypatch):
        (found,) = fetch_checkpoint(address)["state_dict"].values()
        assert torch.equal(found, weight)
    with pytest.raises(FileNotFoundError, match=r"closest are.*net"):
        fetch_checkpoint("torchvision://nett")


@pytest.mark.parametrize(
    "address", ["s3://bucket/net.pth", "petrel://b/net", "pavi://net", "mmcls://net", "ftp://x/y.pth"]
)
def test_other_addresses_are_refused_also_by_mmengine(server, address):
    use_safe_loader()
    for load in (fetch_checkpoint, CheckpointLoader.load_checkpoint):
        with pytest.raises(CheckpointError, match=f"'{address}'.* download it"):
            load(address)


@pytest.mark.parametrize("end", ["", "?v=1.2", "#of-v1.2"])
def test_the_checksum_in_a_name_counts_whatever_follows_the_name(server, end):
    server.files["/net-00000000.pth"] = server.files["/net-00000000.pth?v=1.2"] = content({"a": torch.ones(1)})
    with pytest.raises(CheckpointError, match="not 00000000… as its name says"):
        download(f"{server.address}/net-00000000.pth{end}")


def test_cache_is_checked(server):
    server.files["/a/model.pth"], server.files["/b/model.pth"] = (
        content({"a": torch.ones(1)}),
        content({"b": torch.ones(1)}),
    )
    for name in ("a", "b"):  # two files of one name
        assert list(fetch_checkpoint(f"{server.address}/{name}/model.pth")) == [name]
    requests = len(server.requests)
    path = download(f"{server.address}/a/model.pth")
    assert len(server.requests) == requests
    path.write_bytes(server.files["/b/model.pth"])
    assert list(fetch_checkpoint(f"{server.address}/a/model.pth")) == ["a"]


def test_a_date_in_a_name_is_no_checksum(server):
    server.files["/net-20240115.pth"] = content({"a": torch.ones(1)})
    assert list(fetch_checkpoint(f"{server.address}/net-20240115.pth")) == ["a"]


def test_failed_downloads_leave_nothing(server, tmp_path):
    whole = content({"a": torch.ones(100)})
    server.files["/a-00000000.pth"] = server.files["/cut.pth"] = whole
    with pytest.raises(CheckpointError, match="SHA-256"):
        fetch_checkpoint(f"{server.address}/a-00000000.pth")
    with pytest.raises(ConnectionError, match="404"):
        fetch_checkpoint(f"{server.address}/none.pth")
    server.cut = 50
    with pytest.raises(ConnectionError, match="50 more expected"):
        fetch_checkpoint(f"{server.address}/cut.pth")
    server.cut = 0
    assert not list((tmp_path / "hub").rglob("*.p*"))
    name = f"/a-{hashlib.sha256(whole).hexdigest()[:8]}.pth"
    server.files[name] = whole
    fetch_checkpoint(server.address + name)


def test_threads_that_need_one_file(server, tmp_path):
    server.files["/net.pth"] = content({"a": torch.ones(3)})
    with ThreadPoolExecutor(4) as pool:
        loaded = list(pool.map(fetch_checkpoint, [f"{server.address}/net.pth"] * 4))
    assert all(torch.equal(one["a"], torch.ones(3)) for one in loaded)
    assert server.requests == ["/net.pth"]
    assert not list((tmp_path / "hub").rglob("*.partial"))


def test_addresses_with_spaces_and_letters_of_all_alphabets(server):
    server.files["/my%20model%20%C3%A9.pth"] = content({"a": torch.ones(1)})
    for name in ("my model é.pth", "my%20model%20%C3%A9.pth"):
        assert list(fetch_checkpoint(f"{server.address}/{name}")) == ["a"]


@pytest.mark.parametrize(
    "url",
    ["http://", "http:///x.pth", "http://[/x.pth", "http://localhost:port/x.pth", "http://a\nb/x.pth", f"http://{'a' * 70}.b/x",
     "http://127.0.0.1:1/" + "a" * 5000, "http://\ud800/x.pth"],
)  # fmt: skip
def test_invalid_addresses_raise_the_documented_exception(server, url):
    with pytest.raises(ConnectionError, match="could not be downloaded"):
        fetch_checkpoint(url)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: abc\r\n\r\ndata",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\ndata",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1000 + b"\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: ftp://nowhere.invalid/\r\n\r\n",
    ],
)
def test_malformed_answers_raise_the_documented_exception(server, tmp_path, answer):
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            connection, _ = listening.accept()
            with connection:
                connection.recv(10_000)
                connection.sendall(answer)

        thread = Thread(target=serve, daemon=True)
        thread.start()
        with pytest.raises(ConnectionError, match="could not be downloaded"):
            fetch_checkpoint(f"http://127.0.0.1:{listening.getsockname()[1]}/x.pth")
        thread.join(10)
    assert not list((tmp_path / "hub").rglob("*.p*"))


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("fails", [False, True])
def test_the_first_process_downloads_before_the_others(server, monkeypatch, rank, fails):
    """And, if it fails, the others do not wait for ever."""
    events = []

    def download(url):
        events.append("download")
        if fails:
            raise ConnectionError(url)
        return "file"

    monkeypatch.setattr("mmlisa.checkpoints.download.download", download)
    monkeypatch.setattr("mmlisa.checkpoints.download.get_dist_info", lambda: (rank, 2))
    monkeypatch.setattr("mmlisa.checkpoints.download.barrier", lambda: events.append("barrier"))
    with contextlib.nullcontext() if not fails else pytest.raises(ConnectionError):
        local_file("http://host/x.pth")
    assert events == (["barrier", "download"] if rank else ["download", "barrier"])


@pytest.mark.parametrize("scheme", ["file", "http"])
def test_backbones_read_safely_without_the_tools(server, tmp_path, scheme):
    """Nobody called use_safe_loader: MMEngine's loaders are its own."""
    server.files["/bad.pth"] = content({"state_dict": Malicious(tmp_path / "ran")})
    source = f"{server.address}/bad.pth"
    if scheme == "file":
        source = str(tmp_path / "bad.pth")
        (tmp_path / "bad.pth").write_bytes(server.files["/bad.pth"])
    model = nn.Sequential(LiSANet(ARCH, init_cfg=dict(type="Pretrained", checkpoint=source)))
    with pytest.raises(CheckpointError, match="could run code"):
        model[0].init_weights()
    assert not (tmp_path / "ran").exists()


def test_resume_from_an_address_is_refused_in_words(tmp_path):
    with pytest.raises(ValueError, match=r"--resume .* not a local file.*load_from=http://x/y\.pth"):
        set_resume(Config(dict(work_dir=str(tmp_path))), "http://x/y.pth")
