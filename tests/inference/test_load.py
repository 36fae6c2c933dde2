"""Opening of trained models."""

import pytest

import mmlisa


def test_a_checkpoint_without_a_config_executes_nothing(tmp_path):
    """B12: a folder of a stranger may hold a Python file beside the checkpoint."""
    (tmp_path / "stranger.py").write_text("raise SystemExit")
    with pytest.raises(ValueError, match=r"config.*stranger\.py"):
        mmlisa.load(tmp_path / "best.pth")
