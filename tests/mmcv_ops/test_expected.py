"""Values and gradients against those of mmcv's compiled CPU operators, written by make_expected.py."""

from pathlib import Path

import numpy as np
import pytest
import torch
from operator_cases import CASES, run

EXPECTED = Path(__file__).parent / "expected.npz"


@pytest.mark.parametrize("name", CASES)
def test_as_compiled(name):
    with np.load(EXPECTED) as stored:
        expected = {key.removeprefix(f"{name}: "): stored[key] for key in stored.files if key.startswith(f"{name}: ")}
    found = run(CASES[name])
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        torch.testing.assert_close(
            found[key], torch.from_numpy(value), rtol=1e-5, atol=2e-5, msg=lambda m, key=key: f"{key}: {m}"
        )
