"""Where each frame lies on a contact sheet."""

import torch

from mmlisa.video import contact_sheet
from mmlisa.video.visualization import GAP


def test_contact_sheet():
    clips = torch.randint(0, 256, (2, 3, 5, 6, 7), dtype=torch.uint8)
    sheet = contact_sheet(clips, min_height=6)
    assert sheet.shape == (6 + GAP + 6, 5 * 7 + 4 * GAP, 3)
    for view in range(2):
        for time in range(5):
            y, x = view * (6 + GAP), time * (7 + GAP)
            frame = sheet[y : y + 6, x : x + 7]
            assert (frame[..., ::-1] == clips[view, :, time].permute(1, 2, 0).numpy()).all()
            assert (sheet[y : y + 6, x - GAP : x] == 255).all()


def test_small_frames_are_enlarged():
    flat = torch.arange(10, 20, dtype=torch.uint8).reshape(2, 1, 5, 1, 1).expand(2, 3, 5, 6, 7)
    sheet = contact_sheet(flat, min_height=13)
    assert sheet.shape == (2 * 18 + GAP, 5 * 21 + 4 * GAP, 3)
    assert (sheet[:18, :21] == 10).all()
    assert (sheet[18 + GAP :, -21:] == 19).all()
