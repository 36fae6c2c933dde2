"""The files that docs/architecture.md names are those that an image passes."""

import re
import sys

import torch

from helpers.pages import ROOT
from mmlisa.models.backbones import LiSANet


def test_the_files_of_one_image():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = re.findall(
        r"^\| `(mmlisa/[\w/]+\.py)` \|", page.split("## One image")[1].split("## One checkpoint")[0], re.M
    )
    model, image, passed = LiSANet("hybrid-small").eval(), torch.zeros(1, 3, 500, 333), {}

    def note(frame, event, _):
        path = frame.f_code.co_filename.replace("\\", "/")
        if event == "call" and path.startswith(f"{ROOT.as_posix()}/mmlisa/"):
            passed[path.removeprefix(f"{ROOT.as_posix()}/")] = None

    with torch.no_grad():
        model(image)  # prepares the kernels
        sys.setprofile(note)
        model(image)
        sys.setprofile(None)
    assert named == list(passed)
