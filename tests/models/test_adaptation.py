"""A student and its teacher: losses in closed form, what is trained, and checkpoints that a backbone takes."""

import pytest
import torch
from mmengine.logging import MessageHub

from helpers.networks import randomised
from mmlisa.errors import UserError
from mmlisa.models.adaptation import Adaptation
from mmlisa.models.backbones import DINOv2

NETWORK = dict(
    type="mmlisa.DINOv2",
    arch=dict(base="small", depth=2, channels=48, num_heads=2, layer_scale=1.0, image_size=112),
    out_indices=(0, 1),
)
EXACT, OTHER = dict(type="CellAttention", window=8), dict(type="LinearAngularAttention", residual=True)
IMAGES = torch.randn(3, 3, 112, 112, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def build(tmp_path):
    torch.manual_seed(0)
    trained = randomised(DINOv2(NETWORK["arch"]))
    torch.save({"state_dict": trained.state_dict()}, tmp_path / "trained.pth")
    weights = dict(type="mmlisa.PublishedWeights", source=str(tmp_path / "trained.pth"))

    def build(attention, **options):
        student = dict(NETWORK, attention=attention, init_cfg=weights)
        model = Adaptation(student, dict(NETWORK), **options)
        model.init_weights()
        return model.train()

    return build


def losses(model, iteration):
    MessageHub.get_current_instance().update_info_dict(dict(iter=iteration, max_iters=20))
    return model(IMAGES, mode="loss")


def test_a_student_that_computes_the_same_has_nothing_to_learn(build):
    model = build(EXACT)
    assert float(losses(model, 0)["loss_attention"]) < 1e-9
    found = losses(model, 10)
    assert float(found["loss_maps"]) < 1e-5
    assert float(found["agreement"]) == pytest.approx(1)


def test_attentions_are_compared_in_units_of_their_variance(build):
    """A student that returns nothing misses the mean square of what its teacher returns."""
    model, outputs = build(OTHER), []
    for name in model.names:
        student = model.backbone.get_submodule(name)
        torch.nn.init.zeros_(student.proj.weight)
        torch.nn.init.zeros_(student.proj.bias)
        model.teacher.get_submodule(name).register_forward_hook(lambda _, __, output: outputs.append(output))
    found = losses(model, 0)["loss_attention"]
    expected = sum(y.square().mean() / y.var() for y in outputs) / len(outputs)
    assert float(found) == pytest.approx(float(expected), rel=1e-5)
    variances = model.variances.clone()
    for _ in range(9):
        losses(model, 0)
    assert int(model.measured) == 24
    torch.testing.assert_close(model.variances, variances)  # of the same images


@pytest.mark.parametrize("iteration", [0, 10])
def test_the_student_learns_and_nothing_else_changes(build, iteration):
    model = build(OTHER)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=3e-3, weight_decay=0)
    history = []
    for _ in range(8):
        loss = next(iter(losses(model, iteration).values()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(float(loss))
    assert history[-1] < 0.9 * history[0]
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    changed -= {"variances", "measured"}
    assert changed
    assert all(name.startswith("backbone.stages") and (".attn." in name or ".norm1." in name) for name in changed)


def test_the_student_becomes_a_backbone(build, tmp_path):
    model = build(OTHER)
    meta = {"backbone": model.backbone.settings()}
    torch.save({"state_dict": model.state_dict(), "meta": meta}, tmp_path / "adapted.pth")
    source = dict(type="mmlisa.PublishedWeights", source=str(tmp_path / "adapted.pth"))
    backbone = DINOv2(NETWORK["arch"], attention=OTHER, out_indices=(0, 1), init_cfg=source)
    backbone.init_weights()
    torch.testing.assert_close(backbone(IMAGES)[-1], model(IMAGES)[-1])


def test_what_cannot_be_taught(build):
    with pytest.raises(UserError, match=r"model\.backbone\.attention"):
        build(dict(type="SoftmaxAttention"))
    with pytest.raises(UserError, match="init_cfg"):
        Adaptation(dict(NETWORK, attention=OTHER), dict(NETWORK))
