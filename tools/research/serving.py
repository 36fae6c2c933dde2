"""Measures the server of docs/serve.md: ``python tools/research/serving.py`` asks it one by one, and twenty at a time."""

import argparse
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from mmlisa.inference.load import DEMO
from research.benchmark import describe_commit, describe_processor

PAGE = Path(__file__).parents[2] / "docs" / "serve.md"


def ask(address: str, body: bytes) -> float:
    """Return the seconds of a request; any answer but a success is an HTTPError."""
    begin = time.perf_counter()
    with urllib.request.urlopen(address, body, timeout=120) as answer:
        answer.read()
    return time.perf_counter() - begin


def describe(name: str, seconds: Sequence[float]) -> str:
    median, slow = np.quantile(seconds, (0.5, 0.99)) * 1000
    return f"{name}: {len(seconds)} requests, median {median:.0f} ms, 99th percentile {slow:.0f} ms"


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8765)
    parser.add_argument("--requests", type=int, default=400)
    return parser.parse_args(argv)


def main() -> None:
    args = parse_args()
    body = (DEMO / "000000000006.jpg").read_bytes()
    address = f"http://127.0.0.1:{args.port}/predict"
    with TemporaryDirectory() as folder:
        _, _, rest = PAGE.read_text(encoding="utf-8").partition('```python title="server.py"\n')
        Path(folder, "server.py").write_text(rest.partition("```")[0])
        words = [sys.executable, "-m", "uvicorn", "server:app", "--port", str(args.port), "--log-level", "warning"]
        server = subprocess.Popen(words, cwd=folder, env={**os.environ, "PYTHONPATH": str(PAGE.parents[1])})
        try:
            while server.poll() is None:
                try:
                    ask(address, body)
                    break
                except urllib.error.URLError:
                    time.sleep(0.2)
            print(describe("one caller", [ask(address, body) for _ in range(args.requests // 4)]))
            begin = time.perf_counter()
            with ThreadPoolExecutor(20) as pool:
                seconds = [*pool.map(lambda _: ask(address, body), range(args.requests))]
            print(describe("twenty callers", seconds), f"{args.requests / (time.perf_counter() - begin):.0f} a second")
        finally:
            server.terminate()
    print(f"commit {describe_commit()}, {describe_processor()}")


if __name__ == "__main__":
    main()
