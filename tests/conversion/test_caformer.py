"""CAFormer weights as a start for iViT: everything but the head mixing comes from the file."""

import subprocess
import sys
from pathlib import Path

import pytest
import timm
import torch
from mmengine.registry import DefaultScope

from mmlisa.checkpoints import read_checkpoint
from mmlisa.conversion import convert_published
from mmlisa.registry import MODELS

TOOL = Path(__file__).parents[2] / "tools" / "convert_checkpoint.py"
HEAD = dict(type="mmlisa.MlpClsHead", num_classes=10, in_channels=512, pre_norm=True, activation="SquaredReLU")


def test_classifier_with_softmax_gives_the_logits_of_timm(tmp_path):
    """Through the command line, with random values for what starts constant."""
    torch.manual_seed(0)
    theirs = timm.create_model("caformer_s18", num_classes=10).eval()
    for p in theirs.parameters():
        torch.nn.init.normal_(p, mean=float(p.ndim == 1), std=0.2 if p.ndim == 1 else p[0].numel() ** -0.5)
    torch.save(theirs.state_dict(), tmp_path / "caformer.pth")
    command = [sys.executable, TOOL, tmp_path / "caformer.pth", tmp_path / "ivit.pth", "--head"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert "for iViT 'tiny'" in done.stdout, done.stderr
    checkpoint = read_checkpoint(tmp_path / "ivit.pth")
    softmax = dict(type="InteractiveAttention", landmarks=None, mix_before=False, mix_after=False)
    backbone = dict(checkpoint["meta"]["backbone"], attention=softmax)
    with DefaultScope.overwrite_default_scope("mmpretrain"):
        neck = dict(type="GlobalAveragePooling")
        ours = MODELS.build(dict(type="mmpretrain.ImageClassifier", backbone=backbone, neck=neck, head=HEAD)).eval()
    ours.load_state_dict(checkpoint["state_dict"])
    image = torch.randn(1, 3, 64, 96, dtype=torch.float64)
    with torch.no_grad():
        expected, logits = theirs.double()(image), (ours := ours.double()).head(ours.extract_feat(image))
    # The operators compute in fp32 at least, here in fp64; the constants of the norms show.
    torch.testing.assert_close(logits, expected, rtol=1e-9, atol=1e-9 * expected.abs().max().item())


@pytest.mark.parametrize(
    ("name", "arch"), [("caformer_s18", "tiny"), ("caformer_s36", "small"), ("caformer_m36", "base")]
)
def test_every_size_is_recognised(name, arch):
    with torch.device("meta"):
        state = timm.create_model(name).state_dict()
    checkpoint, report = convert_published(state, head=True)
    assert checkpoint["meta"]["backbone"]["arch"] == arch
    assert len(checkpoint["state_dict"]) == len(state)
    fresh = [line for line in report.splitlines() if "start fresh" in line]
    assert len(fresh) == 1
    assert all(".attn.mix_" in name or ".token_mixer.mix_" in name for name in fresh[0].partition(": ")[2].split(", "))


def test_another_size_is_refused():
    with torch.device("meta"):
        state = timm.create_model("caformer_b36").state_dict()
    with pytest.raises(ValueError, match="another size than iViT 'base'"):
        convert_published(state, to=("iViT", "base"), head=True)
