"""Values and gradients against those of mmcv's compiled CPU operators, written by tests/helpers/mmcv_operators.py."""

import numpy as np
import pytest
import torch

from helpers.mmcv_operators import CASES, EXPECTED, run


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
