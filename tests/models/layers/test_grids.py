"""Parameters on other grids: interpolated at the call, kept between calls, and resized as a checkpoint is loaded."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from helpers.backbones import CASES
from helpers.operators import CASES as OPERATORS
from mmlisa import ops
from mmlisa.checkpoints import adapt_state_dict, load_weights, read_checkpoint, save_checkpoint
from mmlisa.models.attention import build_attention
from mmlisa.models.layers.grids import GridCache, PositionsOnLoad
from mmlisa.registry import MODELS


def positions(grid):
    module = PositionsOnLoad()
    module.grid = grid
    return module


@pytest.mark.parametrize("grid", [(6, 9), (1, 7), (12, 3)])
@pytest.mark.parametrize("prefix", [0, 2])
def test_is_bicubic_interpolation_beside_the_prefix(grid, prefix):
    table = torch.randn(1, prefix + 20, 3, dtype=torch.float64, requires_grad=True)
    y = positions((4, 5)).resize(table, grid)
    assert torch.equal(y[:, :prefix], table[:, :prefix])
    as_map = table[:, prefix:].transpose(1, 2).reshape(1, 3, 4, 5)
    expected = F.interpolate(as_map, size=grid, mode="bicubic").flatten(2).transpose(1, 2)
    torch.testing.assert_close(y[:, prefix:], expected)
    torch.testing.assert_close(
        torch.autograd.grad(y.sin().sum(), table)[0][:, prefix:],
        torch.autograd.grad(expected.sin().sum(), table)[0][:, prefix:],
    )


def test_half_precision_is_interpolated_in_fp32():
    table = torch.randn(1, 20, 3).bfloat16()
    y = positions((4, 5)).resize(table, (6, 7))
    assert y.dtype == torch.bfloat16
    assert torch.equal(y, positions((4, 5)).resize(table.float(), (6, 7)).bfloat16())


@pytest.mark.parametrize("rectangle", [None, (2, 8)])
@pytest.mark.parametrize("prefix", [0, 1, 2])
@pytest.mark.parametrize("wanted", [0, 1, 2])
def test_positions_of_a_checkpoint_with_more_prefix_tokens(wanted, prefix, rectangle):
    """As DeiT's distillation token, which comes second: it is left out, and no position moves by a row."""
    theirs, ours = torch.randn(1, prefix + 16, 3), torch.zeros(1, wanted + 15, 3)
    found = positions((3, 5)).resize_parameter(theirs, ours, rectangle)
    if wanted > prefix:
        assert found is theirs
        return
    as_map = theirs[:, prefix:].mT.unflatten(2, rectangle or (4, 4))
    expected = F.interpolate(as_map, size=(3, 5), mode="bicubic").flatten(2).mT
    torch.testing.assert_close(found, torch.cat([theirs[:, :wanted], expected], dim=1))


class Double:
    """A derivation that counts its calls."""

    def __init__(self):
        self.cache, self.calls = GridCache(), 0

    def __call__(self, parameter, key=(2, 2)):
        def derive():
            self.calls += 1
            return 2 * parameter

        y = self.cache.get(key, [parameter], derive)
        assert torch.equal(y, 2 * parameter)
        return y


@pytest.fixture
def parameter():
    return nn.Parameter(torch.randn(3, 4))


@torch.no_grad()
def test_keeps_the_last_grid(parameter):
    double = Double()
    for key, calls in (((2, 2), 1), ((2, 2), 1), ((3, 3), 2), ((2, 2), 3)):
        double(parameter, key)
        assert double.calls == calls


def test_gradients_flow_and_release_what_was_kept(parameter):
    double = Double()
    with torch.no_grad():
        double(parameter)
    double(parameter).sum().backward()
    assert torch.equal(parameter.grad, torch.full((3, 4), 2.0))
    with torch.no_grad():
        double(parameter)
    assert double.calls == 3


def test_kept_in_inference_mode_serves_a_gradient(parameter):
    """A frozen operator inside a trained network: its tokens need a gradient, its parameters do not."""
    double = Double()
    parameter.requires_grad_(False)
    with torch.inference_mode():
        double(parameter)
    x = torch.randn(3, 4, requires_grad=True)
    (x * double(parameter)).sum().backward()
    assert double.calls == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda p: nn.ParameterDict({"p": p}).load_state_dict({"p": 0.97 * p}),
        lambda p: p.data.mul_(0.97),  # as MMEngine's averages are updated
        lambda p: setattr(p, "data", 0.97 * p.data),  # as its EMAHook exchanges weights and averages
    ],
)
@torch.no_grad()
def test_changed_weights_are_noticed(parameter, change):
    double = Double()
    double(parameter)
    change(parameter)
    double(parameter)
    assert double.calls == 2
    for factor in (0.5, 2.0):  # a tensor at an address that was freed before
        double(factor * parameter)


@torch.no_grad()
def test_a_trace_keeps_no_constant():
    resize, table = positions((4, 4)).resize, torch.randn(1, 16, 8)
    resize(table, (6, 5))
    traced = torch.jit.trace(lambda t: resize(t, (6, 5)), table, check_trace=False)
    torch.testing.assert_close(traced(2 * table), resize(2 * table, (6, 5)))


@pytest.mark.parametrize("case", ["flatten-swin", "flatten-pvt", "levit-own-attention", "castling-mvitv2"])
def test_hosts_take_a_checkpoint_of_another_size(case):
    torch.manual_seed(0)
    small, large = (MODELS.build({**CASES[case], "image_size": size}) for size in (64, 160))
    state = small.state_dict()
    reshaped = [name for name, value in large.state_dict().items() if value.shape != state[name].shape]
    assert reshaped
    assert str(large.load_state_dict(state)) == "<All keys matched successfully>"
    for name in reshaped:
        assert state[name].shape == small.state_dict()[name].shape, "the checkpoint itself is changed"


def test_window_tables_are_bicubic():
    """Swin's windows of 7 to 12: a table of 13 x 13 offsets to 23 x 23, head by head."""
    cfg = dict(type="ShiftedWindowAttention", window_size=12)
    first, second = (build_attention(cfg, 32, 2, grid) for grid in ((7, 7), (12, 12)))
    table = nn.init.normal_(first.relative_position_bias_table).detach()
    second.load_state_dict(first.state_dict())
    expected = F.interpolate(table.T.reshape(1, 2, 13, 13), size=(23, 23), mode="bicubic", align_corners=False)
    torch.testing.assert_close(second.relative_position_bias_table.detach(), expected[0].flatten(1).T)


def test_levits_biases_are_what_the_smaller_network_uses_there():
    small, large = (MODELS.build({**CASES["levit-own-attention"], "image_size": n}) for n in (64, 96))
    bias = small.stages[0].blocks[0].attn.bias
    torch.nn.init.normal_(bias.attention_biases)
    large.load_state_dict(small.state_dict())
    torch.testing.assert_close(large.stages[0].blocks[0].attn.bias((6, 6)), bias((6, 6)))


@pytest.mark.parametrize("case", OPERATORS)
def test_every_operator_takes_weights_of_another_grid(case):
    """Every parameter of an operator that has an entry for each place of a grid is resampled."""
    first, second = (build_attention(OPERATORS[case], 32, 2, grid) for grid in ((5, 5), (7, 4)))
    assert str(second.load_state_dict(first.state_dict())) == "<All keys matched successfully>"


@pytest.mark.parametrize("ours", [(8, 8), (8, 9), (9, 8)])
@pytest.mark.parametrize("grid", [(6, 9), (9, 9), (8, 8)])
def test_a_filter_of_another_grid_keeps_its_taps(ours, grid):
    """Also where both have the same half of a spectrum."""
    first, second = (build_attention(dict(type="GlobalFilter"), 8, 1, size) for size in (ours, grid))
    second.load_state_dict(first.state_dict())
    expected, found = (torch.view_as_complex(each.spectrum.detach()) for each in (first, second))
    taps = torch.fft.irfft2(found, s=grid)
    torch.testing.assert_close(taps, torch.fft.irfft2(ops.resize_spectrum(expected, ours, grid), s=grid))
    assert taps.std() > 1e-3


@pytest.mark.parametrize("way", ["load_state_dict", "file"])
def test_positions_of_a_wide_grid_are_not_those_of_a_square(way, tmp_path):
    """9x16 tokens are as many as 12x12."""
    wide, square = (build_attention(dict(type="FocusedLinearAttention"), 32, 2, grid) for grid in ((9, 16), (12, 12)))
    nn.init.normal_(wide.positional_encoding)
    with torch.no_grad():
        expected = wide.resize(wide.positional_encoding, square.grid)
    assert expected.shape == wide.positional_encoding.shape
    if way == "load_state_dict":
        for _ in range(2):  # the state dict itself stays as it is
            square.load_state_dict(state := wide.state_dict())
            square.load_state_dict(state)
    else:
        save_checkpoint({"state_dict": wide.state_dict()}, tmp_path / "wide.pth")
        load_weights(square, tmp_path / "wide.pth")
        state = adapt_state_dict(square, read_checkpoint(tmp_path / "wide.pth")["state_dict"])
        square.load_state_dict(adapt_state_dict(square, state))  # adapted twice, as a runner does
    torch.testing.assert_close(square.positional_encoding, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["Pretrained", "mmlisa.PublishedWeights"])
def test_the_grid_of_positions_reaches_an_initialization(kind, tmp_path):
    """Below the prefixes of a parallel detector's backbone; 8x18 positions are as many as 12x12."""
    network = dict(type="mmlisa.FLattenDeiT")
    wide, square = (MODELS.build({**network, "image_size": size}) for size in ((128, 288), (192, 192)))
    detector, file = nn.ModuleDict({"module": nn.ModuleDict({"backbone": wide})}), str(tmp_path / "wide.pth")
    save_checkpoint({"state_dict": detector.state_dict()}, file)
    options = dict(checkpoint=file, prefix="backbone.") if kind == "Pretrained" else dict(source=file)
    started = MODELS.build({**network, "image_size": 192, "init_cfg": dict(type=kind, **options)})
    started.init_weights()
    square.load_state_dict(wide.state_dict())
    assert not torch.equal(square.stem.position, wide.stem.position)
    torch.testing.assert_close(started.stem.position, square.stem.position)
