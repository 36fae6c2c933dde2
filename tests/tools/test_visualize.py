"""The names of the models beside each other in a picture."""

import visualize


def test_checkpoints_of_one_config_have_names_of_their_own():
    models = [
        ["a_b.py", "run/1.pth"],
        ["a_b.py", "run/2.pth"],
        ["a_b.py", "run/1.pth", "model.x=3"],
        ["c.py", "run/1.pth"],
    ]
    assert visualize._labels(models) == ["a b, run/1.pth", "a b, run/2.pth", "a b, x=3", "c"]
