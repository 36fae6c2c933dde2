"""What a probe takes for free memory."""

from pathlib import Path

import pytest

from mmlisa.fit import probe


@pytest.mark.parametrize(
    ("limit", "expected"), [("3000000", 2_250_000), ("max", 1024 * 4_000_000), (str(2**60), 1024 * 4_000_000)]
)
def test_a_container_has_what_its_limit_leaves_without_caches(monkeypatch, limit, expected):
    files = {
        "meminfo": "MemTotal: 8000000 kB\nMemFree: 100 kB\nMemAvailable: 4000000 kB",
        "memory.max": limit,
        "memory.current": "1000000",
        "memory.stat": "anon 700000\ninactive_file 250000",
    }
    monkeypatch.setattr(Path, "read_text", lambda path: f"{files[path.name]}\n")
    assert probe._available_bytes() == expected
