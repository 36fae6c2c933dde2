"""LiSANet's own options."""

import pytest
from torch.nn import SyncBatchNorm

from mmlisa.models.backbones import LiSANet


@pytest.mark.parametrize("trained", [True, False])
def test_a_norm_config_is_that_of_openmmlabs_files(trained):
    network = LiSANet("small", norm_cfg=dict(type="SyncBN", requires_grad=trained))
    norms = [module for module in network.modules() if isinstance(module, SyncBatchNorm)]
    assert norms
    assert all(p.requires_grad is trained for norm in norms for p in norm.parameters())
