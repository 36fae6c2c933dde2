import torch
from mmengine.optim import build_optim_wrapper
from timm.optim import Lamb
from torch import nn


def test_lamb_trains_and_spares_one_dimensional_parameters():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 1))
    wrapper = build_optim_wrapper(
        model,
        dict(optimizer=dict(type="mmlisa.Lamb", lr=0.02, weight_decay=0.05), paramwise_cfg=dict(flat_decay_mult=0.0)),
    )
    assert isinstance(wrapper.optimizer, Lamb)
    decays = {group["params"][0].ndim: group["weight_decay"] for group in wrapper.optimizer.param_groups}
    assert decays == {1: 0.0, 2: 0.05}
    x = torch.randn(64, 4)
    losses = []
    for _ in range(40):
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        wrapper.update_params(loss)
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
