"""LiSANet's own options."""

import pytest
from torch.nn import SyncBatchNorm

from mmlisa.models.backbones import LiSANet


@pytest.mark.parametrize("cfg", [dict(num_patterns=4), dict(type="LiSA", num_patterns=4)])
def test_an_option_of_the_operator_keeps_the_rest_of_the_archs(cfg):
    """Table 3c on LiSANet-I, and the first version's B^a without a norm."""
    first = LiSANet(dict(base="v1-tiny", depths=(1, 1, 1, 1)), attention=cfg).stages[0].blocks[0].attn
    assert first.kernel_b.shape[0] == 4
    assert first.bias_a is not None
    assert "norm.weight" not in first.state_dict()
    isotropic = LiSANet(dict(base="isotropic", depths=(1,)), attention=dict(kernel_size=7)).stages[0].blocks[0].attn
    assert isotropic.kernel_b.shape == (16, 7, 7)


@pytest.mark.parametrize("trained", [True, False])
def test_a_norm_config_is_that_of_openmmlabs_files(trained):
    network = LiSANet("small", norm_cfg=dict(type="SyncBN", requires_grad=trained))
    norms = [module for module in network.modules() if isinstance(module, SyncBatchNorm)]
    assert norms
    assert all(p.requires_grad is trained for norm in norms for p in norm.parameters())
