"""CAFormer weights as a start for iViT: everything but the head mixing comes from the file."""

import subprocess
import sys
from pathlib import Path

import pytest
import timm
import torch
from mmengine.registry import DefaultScope

from mmlisa.checkpoints import load_checkpoint
from mmlisa.conversion import convert_classifier
from mmlisa.registry import MODELS

pytestmark = pytest.mark.slow

TOOL = Path(__file__).parents[2] / "tools" / "convert_checkpoint.py"
HEAD = dict(type="mmlisa.MlpClsHead", num_classes=10, in_channels=512, pre_norm=True, activation="SquaredReLU")


def classifier(backbone):
    with DefaultScope.overwrite_default_scope("mmpretrain"):
        neck = dict(type="GlobalAveragePooling")
        return MODELS.build(dict(type="mmpretrain.ImageClassifier", backbone=backbone, neck=neck, head=HEAD))


def test_classifier_with_softmax_gives_the_logits_of_timm(tmp_path):
    """Through the command line, with random values for what starts constant."""
    torch.manual_seed(0)
    theirs = timm.create_model("caformer_s18", num_classes=10).eval()
    for p in theirs.parameters():
        torch.nn.init.normal_(p, mean=float(p.ndim == 1), std=0.2 if p.ndim == 1 else p[0].numel() ** -0.5)
    torch.save(theirs.state_dict(), tmp_path / "caformer.pth")
    command = [sys.executable, TOOL, "caformer", tmp_path / "caformer.pth", tmp_path / "ivit.pth"]
    report = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "mmlisa.iViT 'tiny'" in report
    assert "untrained: 48 keys" in report
    checkpoint = load_checkpoint(tmp_path / "ivit.pth")
    softmax = dict(type="InteractiveAttention", landmarks=None, mix_before=False, mix_after=False)
    ours = classifier(dict(checkpoint["meta"]["backbone"], attention=softmax)).eval()
    ours.load_state_dict(checkpoint["state_dict"])
    image = torch.randn(1, 3, 64, 96)
    with torch.no_grad():
        expected, logits = theirs(image), ours.head(ours.extract_feat(image))
        torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4 * expected.abs().max().item())
        image = image.double()
        expected, logits = theirs.double()(image), (ours := ours.double()).head(ours.extract_feat(image))
    # The operators compute in fp32 at least, here in fp64; the constants of the norms show.
    torch.testing.assert_close(logits, expected, rtol=1e-9, atol=1e-9 * expected.abs().max().item())


@pytest.mark.parametrize(
    ("name", "arch"), [("caformer_s18", "tiny"), ("caformer_s36", "small"), ("caformer_m36", "base")]
)
def test_every_size_is_recognised(name, arch):
    with torch.device("meta"):
        state = timm.create_model(name).state_dict()
    conversion = convert_classifier({"state_dict": state}, "caformer")
    assert conversion.backbone["arch"] == arch
    assert not conversion.dropped
    assert not conversion.missing
    assert all(".mix_" in name for name in conversion.untrained)
    assert len(conversion.state_dict) == len(state)


def test_other_files_are_refused():
    with torch.device("meta"):
        state = timm.create_model("caformer_s18").state_dict()
        poolformer = timm.create_model("poolformer_s12").state_dict()
        other_size = timm.create_model("caformer_b36").state_dict()
    with pytest.raises(ValueError, match="none of the known networks"):
        convert_classifier(poolformer, "caformer")
    with pytest.raises(ValueError, match=r"another size than mmlisa\.iViT.* here, .* in the file"):
        convert_classifier(other_size, "caformer")
    del state["stages.2.blocks.3.mlp.fc1.weight"]
    with pytest.raises(ValueError, match=r"1 of .*stages\.2\.blocks\.3\.mlp\.fc1"):
        convert_classifier(state, "caformer")
