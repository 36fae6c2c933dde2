"""Which checkpoint of a folder a training resumes from."""

import os
import threading
import time

import pytest
import torch

from mmlisa.checkpoints import fetch_checkpoint, latest, latest_checkpoint, save_checkpoint


@pytest.fixture
def warnings(monkeypatch):
    lines = []
    monkeypatch.setattr(latest, "print_log", lambda line, **_: lines.append(line))
    return lines


def save(path, iteration, **entries):
    save_checkpoint({"state_dict": {"a": torch.ones(2)}, "optimizer": {}, "meta": {"iter": iteration}, **entries}, path)
    return str(path)


def test_the_training_that_ran_last_is_continued(tmp_path):
    """Whichever of two trainings in one folder came further; a copied file is as old as the original."""
    for age, (name, iteration, clock) in enumerate(
        [("epoch_3", 30, "20260203_110000"), ("epoch_12", 120, "20260202_235959"), ("iter_31", 31, "20260203_110000")]
    ):
        save(tmp_path / f"{name}.pth", iteration, meta={"iter": iteration, "time": clock})
        os.utime(tmp_path / f"{name}.pth", (1e9 + age, 1e9 + age))
    assert latest_checkpoint(tmp_path) == str(tmp_path / "iter_31.pth")
    (tmp_path / "iter_31.pth").unlink()
    assert latest_checkpoint(tmp_path) == str(tmp_path / "epoch_3.pth")


def test_a_local_time_of_another_zone_does_not_decide(tmp_path):
    """The first was saved hours before the second, by the clock of a zone that is further ahead."""
    now = time.mktime(time.strptime("20260203_120000", "%Y%m%d_%H%M%S"))
    for iteration, clock, saved in (
        (1, "20260203_200000", now - 1.0),
        (2, "20260203_120000", None),
        (3, "20260203_040000", now + 1.0),
    ):
        save(tmp_path / f"iter_{iteration}.pth", iteration, meta={"iter": iteration, "time": clock, "saved_at": saved})
    assert latest_checkpoint(tmp_path) == str(tmp_path / "iter_3.pth")
    (tmp_path / "iter_3.pth").unlink()
    assert latest_checkpoint(tmp_path) == str(tmp_path / "iter_2.pth")


def test_a_second_folder_is_searched(tmp_path, warnings):
    save(tmp_path / "iter_1.pth", 1)
    last = save(tmp_path / "elsewhere" / "iter_2.pth", 2)
    (tmp_path / "last_checkpoint").write_text(last)
    assert latest_checkpoint(tmp_path, tmp_path / "elsewhere") == last
    assert warnings == []


def test_weights_that_are_not_numbers_are_skipped(tmp_path, warnings):
    good = save(tmp_path / "iter_1.pth", 1)
    save(tmp_path / "iter_2.pth", 2, state_dict={"a": torch.tensor([1.0, float("nan")])})
    assert latest_checkpoint(tmp_path) == good
    assert "a holds NaN" in warnings[0]


def test_the_highest_iteration_is_the_newest(tmp_path):
    """Not the latest modification time, which a copy changes, and not the name: epochs and iterations mix."""
    for age, (name, iteration) in enumerate({"epoch_3": 30, "iter_35": 35, "iter_9": 9, "epoch_1": 10}.items()):
        save(tmp_path / f"{name}.pth", iteration)
        os.utime(tmp_path / f"{name}.pth", (1e9 + age, 1e9 + age))
    save_checkpoint({"state_dict": {}, "meta": {"iter": 99}}, tmp_path / "weights_only.pth")
    assert latest_checkpoint(tmp_path) == str(tmp_path / "iter_35.pth")
    assert latest_checkpoint(tmp_path / "nowhere") is None


@pytest.mark.parametrize("damage", ["cut", "weights"])
def test_damaged_ones_are_skipped_and_named(tmp_path, warnings, damage):
    good, bad = save(tmp_path / "iter_1.pth", 1), tmp_path / "iter_2.pth"
    save(bad, 2)
    content = bytearray(bad.read_bytes())
    if damage == "cut":
        del content[-200:]
    else:
        content[content.index(torch.ones(2).numpy().tobytes())] ^= 1
    bad.write_bytes(content)
    assert latest_checkpoint(tmp_path) == good
    assert any("iter_2.pth" in line for line in warnings)


def test_only_files_are_looked_at(tmp_path):
    (tmp_path / "folder.pth").mkdir()
    (tmp_path / "dangling.pth").symlink_to(tmp_path / "missing")
    os.mkfifo(tmp_path / "pipe.pth")
    good, found = save(tmp_path / "iter_1.pth", 1), []
    thread = threading.Thread(target=lambda: found.append(latest_checkpoint(tmp_path)), daemon=True)
    thread.start()
    thread.join(60)  # reading the pipe would never end
    assert found == [good]


@pytest.mark.parametrize("note", [b"http://host/x.pth", b"/elsewhere/gone.pth", b"\xff\xfe\x00", b"", b"a" * 10_000])
def test_a_last_checkpoint_that_names_no_file_is_reported(tmp_path, warnings, note):
    good = save(tmp_path / "iter_1.pth", 1)
    (tmp_path / "last_checkpoint").write_bytes(note)
    assert latest_checkpoint(tmp_path) == good
    assert len(warnings) == 1
    assert "last_checkpoint" in warnings[0]
    (tmp_path / "last_checkpoint").write_text(good)
    latest_checkpoint(tmp_path)
    assert len(warnings) == 1


@pytest.mark.parametrize(
    "meta", [None, [], "text", {}, {"iter": "3"}, {"iter": [3]}, {"iter": -1}, {"iter": True}, {"iter": 1.5}]
)
def test_one_without_an_iteration_is_skipped_and_named(tmp_path, warnings, meta):
    good = save(tmp_path / "iter_1.pth", 1)
    torch.save({"state_dict": {}, "optimizer": {}, "meta": meta}, tmp_path / "iter_2.pth")
    assert latest_checkpoint(tmp_path) == good
    assert "iter_2.pth cannot be resumed" in warnings[0]


def test_a_file_that_changes_after_the_choice_is_read_as_it_is(tmp_path):
    """Nothing is kept between the choice of a checkpoint and its load."""
    path = save(tmp_path / "iter_1.pth", 1)
    assert latest_checkpoint(tmp_path) == path
    status = os.stat(path)
    save(tmp_path / "iter_1.pth", 5)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert fetch_checkpoint(path)["meta"]["iter"] == 5


def test_a_file_of_one_tensor_is_no_checkpoint(tmp_path):
    torch.save(torch.ones(2), tmp_path / "points.pth")
    assert latest_checkpoint(tmp_path) is None
