"""The server of docs/serve.md, started and asked as a reader does it."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

from helpers.pages import ROOT, read_blocks
from mmlisa.inference.load import DEMO

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("onnxruntime")
IMAGE = DEMO / "000000000006.jpg"


@pytest.fixture
def ask(tmp_path):
    """Post a body to the server, and return what it answers."""
    (block,) = [block for block in read_blocks(ROOT / "docs" / "serve.md") if block.title == "server.py"]
    (tmp_path / "server.py").write_text(block.code)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [sys.executable, "-m", "uvicorn", "server:app", "--port", str(port), "--log-level", "warning"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    server = subprocess.Popen(words, cwd=tmp_path, env=env)

    def ask(body: bytes) -> list[dict]:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/predict", body, timeout=60) as answer:
            return json.loads(answer.read())

    try:
        for _ in range(300):
            try:
                ask(IMAGE.read_bytes())
                break
            except urllib.error.URLError:
                assert server.poll() is None, "the server ended"
                time.sleep(0.2)
        yield ask
    finally:
        server.terminate()
        server.wait()


def test_twenty_requests_at_once(ask):
    expected = ask(IMAGE.read_bytes())
    assert len(expected) == 3
    assert {"class", "score", "box"} == expected[0].keys()
    with ThreadPoolExecutor(20) as pool:
        answers = [*pool.map(ask, [IMAGE.read_bytes()] * 20)]
    assert answers == [expected] * 20
    with pytest.raises(urllib.error.HTTPError, match="422"):
        ask(b"no image")
