"""Evaluation answers for the weights that a model has, however they came there: no operator or host keeps anything stale."""

import copy

import pytest
import torch
from torch import nn

from helpers.backbones import CASES as HOSTS
from helpers.operators import CASES as OPERATORS
from mmlisa.models.attention import build_attention
from mmlisa.registry import MODELS

pytestmark = pytest.mark.slow

# Another grid than the pretraining one, so that kernels and positions are resized, and kept.
GRID = (7, 8)


FACTOR = 0.97


def changed(model: nn.Module) -> dict[str, torch.Tensor]:
    return {**model.state_dict(), **{name: FACTOR * p for name, p in model.named_parameters()}}


def in_place(model):
    for p in model.parameters():
        p.mul_(FACTOR)


def through_data(model):
    for p in model.parameters():
        p.data.mul_(FACTOR)


def exchanged_data(model):
    """As MMEngine's EMAHook exchanges weights and averages."""
    for p in model.parameters():
        p.data = FACTOR * p.data


def loaded_first(model):
    model.load_state_dict(changed(model))


def assigned(model):
    model.load_state_dict(changed(model), assign=True)


def replaced(model):
    for module in model.modules():
        for name, p in list(module.named_parameters(recurse=False)):
            setattr(module, name, nn.Parameter(FACTOR * p))


def freed_address(model):
    """New parameters where the old ones lay: allocators hand out what was freed last."""
    for module in model.modules():
        for name, p in list(module.named_parameters(recurse=False)):
            value = (FACTOR * p).numpy()
            delattr(module, name)
            del p
            module.register_parameter(name, nn.Parameter(torch.from_numpy(value).clone()))


def inference_weights(model):
    with torch.inference_mode():
        model.load_state_dict({k: v.clone() for k, v in changed(model).items()}, assign=True)


def inference_weights_in_place(model):
    with torch.inference_mode():
        for p in model.parameters():
            p.mul_(FACTOR)


def trained(model):
    model.train()
    through_data(model)
    model.eval()


def other_dtype(model):
    model.bfloat16().float()


# The last ones leave weights that autograd cannot see, which the first ones cannot change.
CHANGES = (
    *(loaded_first, in_place, through_data, exchanged_data, assigned, replaced, freed_address, trained, other_dtype),
    *(inference_weights, inference_weights_in_place),
)


def evaluate(model, *inputs, mode=torch.no_grad) -> list[torch.Tensor]:
    with mode():
        y = model(*inputs)
    return list(y) if isinstance(y, tuple) else [y]


def same(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return all(map(torch.equal, a, b))


def check(model: nn.Module, *inputs) -> None:
    def fresh(model: nn.Module) -> list[torch.Tensor]:
        return evaluate(copy.deepcopy(model), *inputs)  # copies start with nothing kept

    before = evaluate(model, *inputs)
    others = changed(model)
    called = evaluate(lambda *x: torch.func.functional_call(model, others, x), *inputs)
    assert same(evaluate(model, *inputs), before), "functional_call left something behind"
    for change in CHANGES:
        with torch.no_grad():
            change(model)
        after = evaluate(model, *inputs)
        assert not same(after, before), f"{change.__name__} changes nothing"
        assert same(after, fresh(model)), change.__name__
        assert same(evaluate(model, *inputs, mode=torch.inference_mode), after), change.__name__
        if change is loaded_first:
            assert same(called, after), "functional_call"
        before = after


@pytest.mark.parametrize("case", OPERATORS)
def test_operators(case):
    torch.manual_seed(0)
    operator = build_attention(OPERATORS[case], 32, 2, (6, 7)).eval()
    if any(True for _ in operator.parameters()):
        check(operator, torch.randn(1, 56, 32), GRID)


@pytest.mark.parametrize("case", HOSTS)
def test_hosts(case):
    torch.manual_seed(0)
    check(MODELS.build(HOSTS[case]).eval(), torch.randn(1, 3, 32, 64))
