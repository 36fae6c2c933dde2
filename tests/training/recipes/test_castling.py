"""The schedule of ε, its record, and the end of the branch, in a real MMEngine training."""

import pytest
import torch
from mmengine.model import BaseModel
from mmengine.runner import Runner
from torch.utils.data import DataLoader

from mmlisa.models.attention import LinearAngularAttention


class Model(BaseModel):
    def __init__(self, aux: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.attn = LinearAngularAttention(8, 2, grid=(2, 3), aux=aux)
        self.seen: list[float] = []

    def forward(self, x, mode="tensor"):
        self.seen.append(round(float(self.attn.epsilon), 4))
        return dict(loss=self.attn(x, (2, 3)).square().mean())


def train(tmp_path, model: Model, hook: dict) -> Runner:
    data = [torch.randn(6, 8) for _ in range(10)]
    runner = Runner(
        model,
        str(tmp_path),
        train_dataloader=DataLoader(data, batch_size=2),
        train_cfg=dict(by_epoch=True, max_epochs=2),
        optim_wrapper=dict(optimizer=dict(type="SGD", lr=0.1)),
        custom_hooks=[dict(type="mmlisa.CastlingHook", **hook)],
        visualizer=dict(type="Visualizer", vis_backends=[dict(type="LocalVisBackend")]),
        experiment_name=str(tmp_path),  # MMEngine keeps one message hub per name
    )
    model.data_preprocessor.forward = lambda data, training=False: dict(x=data)
    runner.train()
    return runner


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (dict(schedule="constant"), [0.02] * 10),
        (dict(schedule="step", begin=0.5), [0.02] * 4 + [1.0] * 6),
        (dict(schedule="linear", begin=0.5), [0.02] * 4 + [0.02, 0.216, 0.412, 0.608, 0.804, 1.0]),
    ],
)
def test_schedules(tmp_path, options, expected):
    model = Model()
    runner = train(tmp_path, model, dict(interval=2, **options))
    assert model.seen == pytest.approx(expected)
    ratios = runner.message_hub.get_scalar("castling/attn/nonzero_ratio").data[0]
    assert len(ratios) == 5
    assert ratios[0] > 0
    assert (ratios[-1] > 0) == (options["schedule"] == "constant")
    assert not model.attn.aux


def test_a_model_without_a_branch_is_refused(tmp_path):
    with pytest.raises(ValueError, match="aux=True"):
        train(tmp_path, Model(aux=False), {})
