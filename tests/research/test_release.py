"""One command measures what the pages print: steps are kept, a busy machine is refused, tables and stamps stand between marks."""

import json
import subprocess

import pytest

from research import release

STEP = (
    "-c",
    "import sys; open(sys.argv[1], 'a').write('x'); sys.exit(len(sys.argv) > 2)",
)


@pytest.fixture
def root(tmp_path):
    """A clone with one commit, pages, and measurements of two networks."""
    benchmarks = tmp_path / "docs" / "benchmarks"
    benchmarks.mkdir(parents=True)
    (tmp_path / "mmlisa").mkdir()
    (tmp_path / "mmlisa" / "a.py").write_text("")
    (tmp_path / ".gitignore").write_text("work_dirs\n")
    for suite, case in (
        ("backbones", "224x224"),
        ("detectors", "800x1344"),
        ("training", "512x512"),
        ("pixels", "224x224"),
    ):
        rows = [
            dict(name=name, case=case, seconds=s, peak_bytes=10 * s, saved_bytes=100, ns_per_pixel=s)
            for name, s in (("iViT-T", 3.0), ("Swin-T", 4.0))
        ]
        (benchmarks / f"{suite}_cpu.json").write_text(json.dumps({"rows": rows}))
    rows = [
        dict(name=name, case=case, seconds=s, peak_bytes=2e7)
        for case in ("7x7", "14x14")
        for name, s in (("LiSA", 0.0012), ("InLine", 0.1 if case == "14x14" else 0.0123), ("pseudo-code", 1.0))
    ]
    (benchmarks / "scaling_cpu.json").write_text(json.dumps({"rows": rows}))
    (benchmarks / "deploy.json").write_text('{"rows": []}')
    (tmp_path / "README.md").write_text(
        "before\n<!-- measured: ratios -->\nold\n<!-- /measured -->\n<!-- measured: stamp -->\n<!-- /measured -->\n"
    )
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *command], check=True)
    return tmp_path


def steps(root, **failing):
    return {name: (*STEP, str(root / name), *failing.get(name, ())) for name in ("one", "two")}


def test_finished_steps_are_kept(root, capsys):
    with pytest.raises(subprocess.CalledProcessError):
        release.measure(root, steps(root, two=["fail"]), busy=lambda: 0.0)
    assert "old" in (root / "README.md").read_text(), "nothing is written before all steps are done"
    done = release.measure(root, steps(root), busy=lambda: 0.0)
    assert ((root / "one").read_text(), (root / "two").read_text()) == ("x", "xx")
    assert done.seconds.keys() == {"one", "two"}
    assert "2 steps took 0 minutes" in capsys.readouterr().out
    readme = (root / "README.md").read_text()
    assert readme.startswith("before\n<!-- measured: ratios -->\n\n| over Swin-T's | HyLiSANet-S | LiSANet-S |")
    assert (
        "| inference at 224x224, time | – | – | – | 0.75 |\n| inference at 800x1344, time | – | – | – | – |\n" in readme
    )
    assert "| the same, tensors saved for the backward pass | – | – | – | 1.00 |" in readme
    assert f"*Measured at commit {done.commit} on " in readme


def test_layers_over_the_number_of_tokens(root):
    table = release.tables(root, release.current(root))["scaling"]
    assert table.splitlines() == [
        "| ms | InLine | LiSA |",
        "| --- | --- | --- |",
        "| 7x7 | 12.3 | 1.20 |",
        "| 14x14 | 100 | 1.20 |",
        "| peak memory at 14x14, MB | 20 | 20 |",
    ]


def test_other_code_is_measured_anew(root, capsys):
    release.measure(root, steps(root), busy=lambda: 0.0)
    (root / "mmlisa" / "a.py").write_text("1")
    with pytest.raises(ValueError, match=r"mmlisa/a\.py differs from the last commit"):
        release.measure(root, steps(root), busy=lambda: 0.0)
    subprocess.run(
        ["git", "-C", str(root), "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qam", "b"], check=True
    )
    release.measure(root, steps(root), busy=lambda: 0.0)
    assert (root / "one").read_text() == "xx"
    assert "all steps run again" in capsys.readouterr().out


def test_a_busy_machine_is_refused(root):
    with pytest.raises(ValueError, match="other processes take 40% of the processors' time"):
        release.measure(root, steps(root), busy=lambda: 0.4)
    assert not (root / "one").exists()


def test_marks(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("<!-- measured: stamp -->\n")
    with pytest.raises(ValueError, match="without"):
        release.fill(page, {"stamp": "s"})
    page.write_text("<!-- measured: moon -->\n<!-- /measured -->\n")
    with pytest.raises(ValueError, match="a mark 'moon'; the tables are stamp"):
        release.fill(page, {"stamp": "s"})


def test_results_of_demos_are_kept_with_the_commit(root):
    """They are read when the training ends, from the folder of the measured commit."""
    log = root / "work_dirs" / "release" / release.current(root).commit / release.DEMOS[0] / "2" / "vis_data" / "2.json"
    lines = [
        dict(loss=1.0, step=50),
        {"coco/bbox_mAP_50": 0.5, "step": 200},
        {"coco/bbox_mAP_50": 0.91, "coco/segm_mAP_50": 0.896, "step": 400},
    ]
    write = (
        "import sys, pathlib; p = pathlib.Path(sys.argv[1]); p.parent.mkdir(parents=True); p.write_text(sys.argv[2])"
    )
    place = str(log).replace(release.current(root).commit, "{commit}")
    training = {
        release.DEMOS[0]: ("-c", write, place, "\n".join(map(json.dumps, lines)).replace("{", "{{").replace("}", "}}"))
    }
    done = release.measure(root, training, busy=lambda: 0.0)
    assert done.demos == {release.DEMOS[0]: ["bbox AP50 0.910, segm AP50 0.896", "400"]}
    log.unlink()
    assert release.measure(root, training, busy=lambda: 0.0) == done
    assert (
        f"| `{release.DEMOS[0]}` | bbox AP50 0.910, segm AP50 0.896 | 400 | 0.0 |"
        in release.tables(root, done)["demos"]
    )


def test_every_step_exists_in_this_clone():
    root = release.Path(release.__file__).parents[2]
    for script, *options in release.STEPS.values():
        assert (root / script).is_file()
        assert all((root / option).is_file() for option in options if option.startswith("configs/"))
