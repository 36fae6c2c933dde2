"""The demo page: what it finds and computes, and the page itself in a real browser, offline."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from mmcv.transforms import Pad, Resize
from mmengine.config import Config
from mmengine.dataset import Compose
from mmengine.registry import MODELS, init_default_scope
from mmpretrain.models import ClsDataPreprocessor
from PIL import Image

import gradio_app
from mmlisa import config_path
from mmlisa.datasets.demo_objects import CLASSES
from mmlisa.deploy.inference import Predictor
from mmlisa.training.config import load_config
from mmlisa.visualization.overlays import LONGER_SIDE

BROWSER = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)


@pytest.fixture(scope="module")
def work_dirs(tmp_path_factory):
    """Two trainings of classifiers with random weights, as work dirs have them."""
    root = tmp_path_factory.mktemp("work_dirs")
    cfg = load_config(config_path("classifier_hylisanet_demo.py"))
    init_default_scope(cfg.default_scope)
    torch.manual_seed(0)
    state = {"state_dict": MODELS.build(cfg.model).state_dict(), "meta": {"dataset_meta": {"classes": CLASSES}}}
    for name in ("one", "two"):
        (root / name).mkdir()
        Config(cfg.to_dict()).dump(root / name / f"{name}.py")
        torch.save(state, root / name / "iter_4.pth")
    (root / "logs").mkdir()
    return root


@pytest.fixture
def picture():
    return np.random.default_rng(0).integers(0, 255, (48, 80, 3), dtype=np.uint8)


@pytest.fixture
def predictor(work_dirs) -> Predictor:
    checkpoint = gradio_app.find_models(work_dirs)["one/iter_4.pth"]
    return gradio_app.load_predictor(checkpoint, checkpoint.stat().st_mtime)


def test_checkpoints_of_work_dirs(work_dirs):
    found = gradio_app.find_models(work_dirs)
    assert set(found) == {"one/iter_4.pth", "two/iter_4.pth"}
    assert found["one/iter_4.pth"] == work_dirs / "one" / "iter_4.pth"
    assert gradio_app.find_models(work_dirs / "none") == {}


def test_models_of_fit_are_found(tmp_path):
    expected = {f"{run}/{file}" for run in ("fit/a-1", "fit/b-2", "own") for file in ("train/best_1.pth", "model.onnx")}
    for name in expected:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
        (tmp_path / name).with_name("config.py").touch()
    (tmp_path / "fit" / "a-1" / "report").mkdir()
    (tmp_path / "fit" / "a-1" / "report" / "other.pth").touch()
    found = gradio_app.find_models(tmp_path)
    assert found == {name: tmp_path / name for name in expected}


def test_a_prediction_with_its_time_and_memory(predictor, picture):
    run = gradio_app.predict(predictor, picture, 0.3)
    assert run.drawing.shape[1] == LONGER_SIDE
    assert run.summary.split()[0] in CLASSES
    assert run.seconds > 0
    assert run.peak_bytes > picture.nbytes
    assert str(run).endswith(f"{run.peak_bytes / 1e6:.0f} MB")


def test_a_picture_and_its_file_have_the_same_prediction(predictor, picture, tmp_path):
    Image.fromarray(picture).save(tmp_path / "picture.png")
    from_file = predictor.predict(tmp_path / "picture.png")
    from_array = predictor.predict(picture)
    np.testing.assert_array_equal(from_array.probabilities, from_file.probabilities)


def test_kernels_of_every_layer(predictor, picture):
    found = gradio_app.kernels(predictor, picture, (0.5, 0.25))
    assert [caption.split(",")[0] for _, caption in found] == [
        "stages.2.blocks.0.attn",
        "stages.2.blocks.1.attn",
        "stages.3.blocks.0.attn",
    ]
    assert all(drawing.shape == (192, 320, 3) for drawing, _ in found)


@pytest.mark.parametrize("to_rgb", [True, False])
def test_kernels_of_a_model_that_does_not_normalise_or_takes_bgr(predictor, monkeypatch, to_rgb):
    seen = []
    monkeypatch.setattr(gradio_app, "attention_kernels", lambda backbone, image, *_: seen.append(image) or {})
    monkeypatch.setitem(predictor.model._modules, "data_preprocessor", ClsDataPreprocessor(to_rgb=to_rgb))
    gradio_app.kernels(predictor, np.full((64, 64, 3), (10, 20, 30), np.uint8), (0.5, 0.5))
    assert seen[0][:, 0, 0].tolist() == pytest.approx([10, 20, 30] if to_rgb else [30, 20, 10])


def test_kernels_are_those_of_the_picture_as_the_network_gets_it(predictor, picture, monkeypatch):
    """At the size of the pipeline without its padding, and in the network's order of channels."""
    steps = [Resize(scale=(60, 60), keep_ratio=True), Pad(size=(60, 60)), *predictor.pipeline.transforms]
    monkeypatch.setattr(predictor, "pipeline", Compose(steps))
    preprocessor, images = predictor.model.data_preprocessor, []
    monkeypatch.setattr(gradio_app, "attention_kernels", lambda backbone, image, *_: images.append(image) or {})
    for to_rgb in (True, False):
        monkeypatch.setattr(preprocessor, "to_rgb", to_rgb)
        gradio_app.kernels(predictor, picture, (0.5, 0.5))
    assert images[0].shape == (3, 36, 60)
    rgb, bgr = (image * preprocessor.std + preprocessor.mean for image in images)
    torch.testing.assert_close(bgr, rgb.flip(0))


@pytest.mark.slow
def test_a_demo_is_trained_in_a_process_of_its_own(monkeypatch, tmp_path):
    """Its output is passed on; what fails is said; a page that is closed ends the training."""
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\ntrap "touch $7/ended" TERM\necho "$@"\n[ -e "$7/fail" ] && exit 2\nsleep 30 & wait\n')
    python.chmod(0o755)
    monkeypatch.setattr(gradio_app.sys, "executable", str(python))
    name, config = next(iter(gradio_app.DEMOS.items()))
    work_dir = tmp_path / Path(config).stem
    work_dir.mkdir()
    training = gradio_app.train_demo(name, tmp_path)
    assert next(training).endswith(f" mmlisa.cli train {config} --work-dir {work_dir}")
    training.close()
    assert (work_dir / "ended").exists()
    (work_dir / "fail").touch()
    *_, last = gradio_app.train_demo(name, tmp_path)
    assert last.endswith("The training failed (exit status 2).")


def test_the_page_in_a_browser(work_dirs, picture, tmp_path):
    """Dropped, run and clicked, with every address but the page's own out of reach."""
    pytest.importorskip("gradio", reason="the demo page needs Gradio: pip install 'mmlisa[demo-page]'")
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="Playwright, which drives the browser, is not installed"
    )
    if BROWSER is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    Image.fromarray(picture).resize((400, 240)).save(tmp_path / "picture.png")
    page = gradio_app.build_page(work_dirs)
    _, address, _ = page.launch(prevent_thread_lock=True, quiet=True, footer_links=[])

    def pass_own_only(route):
        own = route.request.url.startswith((address, "data:", "blob:"))
        route.continue_() if own else route.abort()

    options = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    try:
        with playwright.sync_playwright() as engine:
            browser = engine.chromium.launch(executable_path=BROWSER, args=options)
            tab = browser.new_page(viewport={"width": 1280, "height": 1400})
            tab.set_default_timeout(120_000)
            tab.route("**/*", pass_own_only)
            tab.goto(address)
            tab.locator("#picture input[type=file]").set_input_files(str(tmp_path / "picture.png"))
            tab.locator("#picture img").wait_for()
            tab.locator("#second input").click()
            tab.get_by_role("option", name="two/iter_4.pth").click()
            tab.locator("#run").click()
            for side in ("first", "second"):
                tab.locator(f"#drawing-{side} img").wait_for()
            summaries = [tab.locator(f"#summary-{side}").inner_text() for side in ("first", "second")]
            tab.locator("#picture img").click()
            tab.locator("#pixel", has_text="for pixel (").wait_for()
            for side in ("first", "second"):
                tab.locator(f"#kernels-{side} img").nth(2).wait_for()
            tab.screenshot(path=str(tmp_path / "page.png"))
            browser.close()
    finally:
        page.close()
    assert summaries[0].splitlines()[0] == summaries[1].splitlines()[0], "the weights are the same"
    assert all("ms, peak memory" in summary for summary in summaries)
    assert Path(tmp_path / "page.png").stat().st_size > 10_000
