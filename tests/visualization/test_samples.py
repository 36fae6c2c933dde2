"""Where each frame lies on a contact sheet."""

import numpy as np
import torch

from mmlisa.visualization.samples import GAP, contact_sheet


def test_contact_sheet():
    """Frames of one colour each, enlarged by three."""
    clips = torch.randint(0, 256, (2, 3, 5, 1, 1), dtype=torch.uint8).expand(2, 3, 5, 6, 7)
    sheet = contact_sheet(clips, min_height=13)
    assert sheet.shape == (2 * 18 + GAP, 5 * 21 + 4 * GAP, 3)
    for view, time in np.ndindex(2, 5):
        y, x = view * (18 + GAP), time * (21 + GAP)
        assert (sheet[y : y + 18, x : x + 21, ::-1] == clips[view, :, time, 0, 0].numpy()).all()
        assert (sheet[y : y + 18, x - GAP : x] == 255).all()
