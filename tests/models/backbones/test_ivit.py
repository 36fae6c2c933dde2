"""iViT's sizes against timm's CAFormer, and its initialisation."""

import re

import timm
import torch

from mmlisa.models.backbones import InteractiveViT, iViT

SOFTMAX = dict(type="InteractiveAttention", landmarks=None, mix_before=False, mix_after=False)


def test_head_mixing_survives_initialisation():
    """Small random mixing matrices would shrink the output of the attention to nothing."""
    backbone = iViT(dict(base="tiny", depths=(1, 1, 1, 1)), init_cfg=dict(type="TruncNormal", layer="Linear", std=0.02))
    backbone.init_weights()
    mixings = {n: p for n, p in backbone.named_parameters() if ".mix_" in n}
    assert len(mixings) == 8
    assert all(torch.equal(p, torch.eye(len(p))) for p in mixings.values())
    assert backbone.stages[2].blocks[0].token_mixer.qkv.weight.std() < 0.03


def test_plain_vit_equals_timm():
    """With softmax attention, at the pretraining resolution."""
    torch.manual_seed(0)
    options = dict(class_token=False, global_pool="avg", fc_norm=False, img_size=64, depth=2, num_classes=0)
    theirs = timm.create_model("vit_tiny_patch16_224", **options).double().eval()
    ours = InteractiveViT(dict(base="tiny-16", depth=2), attention=dict(SOFTMAX), image_size=64).double().eval()
    state = {}
    for name, tensor in theirs.state_dict().items():
        name = name.replace("patch_embed", "stem").replace("pos_embed", "stem.position")
        state[re.sub(r"^blocks\.(\d)", r"stages.\1.blocks.0", name)] = tensor
    ours.load_state_dict(state)
    image = torch.randn(2, 3, 64, 64, dtype=torch.float64)
    with torch.no_grad():
        (mine,), other = ours(image), theirs.forward_features(image)
    torch.testing.assert_close(mine.flatten(2).transpose(1, 2), other, rtol=1e-8, atol=1e-8)
