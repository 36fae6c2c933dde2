"""Colours of tokens by the components that made them."""

import torch

from mmlisa.visualization.features import colours, draw_features, main_components


def made_of(amounts, generator):
    """A map whose tokens are a mean and three orthogonal directions of falling weight."""
    directions, _ = torch.linalg.qr(torch.randn(16, 3, generator=generator))
    directions = directions * directions.gather(0, directions.abs().argmax(0, keepdim=True)).sign()
    return 5 + torch.einsum("cd,dhw->chw", directions * torch.tensor([9.0, 3.0, 1.0]), amounts), directions


def test_the_components_are_the_directions_that_made_the_tokens():
    generator = torch.Generator().manual_seed(0)
    amounts, _ = torch.linalg.qr(torch.randn(40, 4, generator=generator))
    amounts = amounts.T - amounts.T.mean(1, keepdim=True)
    features, directions = made_of(amounts[:3].unflatten(1, (5, 8)), generator)
    mean, components = main_components(features)
    assert (components * directions).sum(0).abs().min() > 0.99
    picture = colours(features, mean, components)
    assert picture.shape == (5, 8, 3)
    signs = (components * directions).sum(0).sign()
    for values, amount, sign in zip(
        picture.flatten(0, 1).T, amounts, signs, strict=False
    ):  # the fourth is in no colour
        assert torch.corrcoef(torch.stack([values, sign * amount]))[0, 1] > 0.99
        assert ((values > 0) & (values < 1)).sum() >= 36


def test_a_second_map_has_the_colours_of_the_first(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr("matplotlib.axes.Axes.imshow", lambda axis, image, *_, **options: drawn.append(image))
    features = torch.randn(16, 6, 9, generator=torch.Generator().manual_seed(0))
    maps = {"one": features, "two": features.flip(2), "narrow": features[:8]}
    draw_features(torch.zeros(3, 60, 90, dtype=torch.uint8), maps, tmp_path / "features.png")
    assert torch.allclose(drawn[2], drawn[1].flip(1), atol=1e-5)
    assert not torch.allclose(drawn[3], drawn[1])
    assert (tmp_path / "features.png").exists()
