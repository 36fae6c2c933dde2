"""What a probe takes for free memory."""

from pathlib import Path

import pytest

from mmlisa.fit import probe


@pytest.mark.parametrize(
    ("limit", "expected"), [("3000000", 2_000_000), ("max", 4096 * 10**6), (str(2**60), 4096 * 10**6)]
)
def test_a_container_has_what_its_limit_leaves(monkeypatch, limit, expected):
    files = {"memory.max": limit, "memory.current": "1000000"}
    monkeypatch.setattr(Path, "read_text", lambda path: f"{files[path.name]}\n")
    monkeypatch.setattr("os.sysconf", {"SC_AVPHYS_PAGES": 10**6, "SC_PAGE_SIZE": 4096}.get)
    assert probe._available_bytes() == expected
