"""The deploy suite continues where it was stopped, and its forms of LiSA are LiSA."""

import json

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mmlisa import ops
from research import deploy_benchmark as deploy

SMALL = deploy.Network(((64, 64), (96, 96)))


@pytest.fixture
def measured(monkeypatch):
    calls = []

    def measure(name, size, threads, rounds, folder, compiled):
        calls.append((name, size, threads))
        common = dict(case=f"{size[0]}x{size[1]}", name=name, threads=threads, precision="fp32")
        return [
            dict(common, engine="eager", seconds=0.02, ratio=1.0),
            dict(common, engine="ncnn", seconds=0.01, ratio=0.5),
        ]

    monkeypatch.setattr(deploy, "measure", measure)
    monkeypatch.setattr(deploy, "NETWORKS", {"a": SMALL, "b": SMALL})
    monkeypatch.setattr(deploy, "find_spec", lambda name: name)
    return calls


def test_the_suite_continues(measured, tmp_path):
    out = tmp_path / "deploy.json"
    deploy.run(["a"], [(64, 64)], [1], 1, out, tmp_path)
    text = deploy.run(["a", "b"], None, [1, 2], 1, out, tmp_path)
    assert len(measured) == len(set(measured)) == 8
    assert len(json.loads(out.read_text())["rows"]) == 16
    assert text.count("| a | 20 (1.00) | 10 (0.50) |") == 4
    assert "### 96x96, 2 threads\n" in text


def test_another_commit_is_measured_anew(measured, tmp_path):
    out = tmp_path / "deploy.json"
    deploy.run(["a"], [(64, 64)], [1], 1, out, tmp_path)
    out.write_text(json.dumps(json.loads(out.read_text()) | dict(commit="before")))
    deploy.run(["b"], [(64, 64)], [1], 1, out, tmp_path)
    deploy.run(["a"], [(64, 64)], [1], 1, out, tmp_path)
    assert [name for name, *_ in measured] == ["a", "b", "a"]


def test_missing_engines_are_named(monkeypatch, tmp_path):
    monkeypatch.setattr(deploy, "find_spec", lambda name: None if name == "ncnn" else name)
    with pytest.raises(ImportError, match=r"--suite deploy needs ncnn: pip install ncnn"):
        deploy.run([], None, [1], 1, tmp_path / "deploy.json", tmp_path)


@pytest.mark.parametrize("form", deploy.FORMS)
def test_forms_are_lisa(form):
    tokens = [torch.randn(3, 4, 5, 6) for _ in range(3)]
    kernels = [torch.randn(4, 2, 5, 6), torch.randn(2, 5, 6), torch.randn(4, 2)]
    expected = ops.lisa(*(x[None] for x in tokens), *kernels, backend="reference")[0]
    torch.testing.assert_close(deploy._Form(form, *kernels)(*tokens), expected, rtol=1e-4, atol=1e-4)


def test_difference_is_relative_to_the_spread():
    """A head's large bias does not hide an error."""
    expected = [torch.tensor([[101.0, 97.0]]), torch.arange(2.0)]
    found = [torch.tensor([101.0, 96.0]).numpy(), torch.arange(2.0).numpy()]
    assert deploy.difference(found, expected) == 0.5


@pytest.mark.parametrize(("source", "target"), [(-1, 1), (1, -1), (0, 2), (3, 0)])
def test_movedim_is_recorded_as_permute(source, target):
    x = torch.randn(2, 3, 4, 5)
    with deploy._WithoutMovedim():
        traced = torch.jit.trace(lambda x: x.movedim(source, target) + 1, x)
    assert "movedim" not in str(traced.graph)
    assert torch.equal(traced(x), x.movedim(source, target) + 1)


# The tests of ncnn need pnnx and ncnn, which the development environment does not have.


class _ByFunction(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.conv, self.function = nn.Conv2d(3, 16, 1), function

    def forward(self, image):
        return self.function(self.conv(image))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x.movedim((1, 2), (2, 1)), r"ncnn has no operator aten::movedim"),
        # pnnx writes a normalisation of the channels instead.
        (lambda x: F.normalize(x.flatten(2), dim=-1), r"pnnx says: unsupported normalize"),
    ],
)
def test_what_ncnn_cannot_compute_is_refused(function, message, tmp_path):
    pytest.importorskip("pnnx")
    with pytest.raises(ValueError, match=message):
        deploy.convert_to_ncnn(_ByFunction(function), torch.randn(1, 3, 32, 32), tmp_path / "model")


@pytest.mark.parametrize("backbone", ["LCNet", "Castling-LCNet", "Castling-ESNet"])
def test_picodet_in_ncnn_equals_pytorch(backbone, tmp_path):
    for package in ("pnnx", "ncnn"):
        pytest.importorskip(package)
    model, image = deploy.NETWORKS[f"PicoDet-S 320, {backbone}"].build(""), torch.randn(1, 3, 320, 320)
    deploy.convert_to_ncnn(model, image, tmp_path / "model")
    found = deploy._ncnn(tmp_path / "model.ncnn.param", image.numpy(), 1)()
    assert deploy.difference(found, deploy._infer(model, image)) < 1e-5
