"""CAFormer weights as a start for iViT: everything but the head mixing comes from the file."""

import pytest
import timm
import torch
from mmengine.registry import DefaultScope

from mmlisa.conversion import convert_published
from mmlisa.registry import MODELS

HEAD = dict(type="mmlisa.MlpClsHead", num_classes=10, in_channels=512, pre_norm=True, activation="SquaredReLU")


def test_classifier_with_softmax_gives_the_logits_of_timm():
    """With random values for what starts constant."""
    torch.manual_seed(0)
    theirs = timm.create_model("caformer_s18", num_classes=10).eval()
    for p in theirs.parameters():
        torch.nn.init.normal_(p, mean=float(p.ndim == 1), std=0.2 if p.ndim == 1 else p[0].numel() ** -0.5)
    checkpoint, _ = convert_published(theirs.state_dict(), head=True)
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
    checkpoint, _ = convert_published(state, head=True)
    assert checkpoint["meta"]["backbone"]["arch"] == arch
    assert len(checkpoint["state_dict"]) == len(state)
