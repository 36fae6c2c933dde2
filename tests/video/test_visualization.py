"""Where each frame lies on a contact sheet."""

import torch

from mmlisa.video import contact_sheet


def test_contact_sheet():
    clips = torch.randint(0, 256, (2, 3, 5, 6, 7), dtype=torch.uint8)
    sheet = contact_sheet(clips, min_height=6)
    assert sheet.shape == (12, 35, 3)
    for view in range(2):
        for time in range(5):
            frame = sheet[6 * view : 6 * (view + 1), 7 * time : 7 * (time + 1)]
            assert (frame[..., ::-1] == clips[view, :, time].permute(1, 2, 0).numpy()).all()
    enlarged = contact_sheet(clips, min_height=13)
    assert enlarged.shape == (36, 105, 3)
    assert (enlarged[1::3, 1::3] == sheet).all()
