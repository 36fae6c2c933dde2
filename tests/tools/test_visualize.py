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


def test_a_checkpoint_in_a_folder_named_like_an_option(tmp_path):
    checkpoint = tmp_path / "lr=0.1" / "iter_2.pth"
    checkpoint.parent.mkdir()
    checkpoint.touch()
    (model,) = visualize.parse_args(["a.jpg", "--model", "c.py", str(checkpoint), "model.x=3"]).model
    assert visualize._files(model) == ["c.py", str(checkpoint)]
    assert visualize._options(model) == ["model.x=3"]
