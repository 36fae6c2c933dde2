"""The demo page: the models that it finds, its kernels, and the page itself in a real browser, offline."""

import shutil

import numpy as np
import pytest
import torch
from mmengine.config import Config
from PIL import Image

from mmlisa.commands import demo_page
from mmlisa.datasets.demo_objects import CLASSES
from mmlisa.training.building import build_model
from mmlisa.training.config import load_config

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture(scope="module")
def work_dirs(tmp_path_factory):
    """Two trainings of classifiers with random weights, as work dirs have them, and a folder without a config."""
    root = tmp_path_factory.mktemp("work_dirs")
    cfg = load_config("classifier_hylisanet_demo.py")
    torch.manual_seed(0)
    state = {"state_dict": build_model(cfg).state_dict(), "meta": {"dataset_meta": {"classes": CLASSES}}}
    for name in ("one", "fit/two/train", "none"):
        (root / name).mkdir(parents=True)
        torch.save(state, root / name / "iter_4.pth")
        if name != "none":
            Config(cfg.to_dict()).dump(root / name / "config.py")
    return root


@pytest.fixture
def picture():
    return np.random.default_rng(0).integers(0, 255, (48, 80, 3), dtype=np.uint8)


def test_predictions_and_kernels_of_a_model(work_dirs, picture):
    found = demo_page.find_models(work_dirs)
    assert set(found) == {"one/iter_4.pth", "fit/two/train/iter_4.pth"}
    predictor = demo_page.load_predictor(*found["one/iter_4.pth"], changed=0.0)
    drawing, summary = demo_page.predict(predictor, picture, 0.3)
    assert drawing.ndim == 3
    assert summary.split()[0] in CLASSES
    kernels = demo_page.draw_kernels(predictor, picture, (0.5, 0.25))
    assert [name for _, name in kernels] == [
        f"stages.{name}.attn" for name in ("2.blocks.0", "2.blocks.1", "3.blocks.0")
    ]
    assert all(drawing.shape == (192, 320, 3) for drawing, _ in kernels)


@pytest.mark.nightly
def test_the_page_in_a_browser(work_dirs, picture, tmp_path):
    """Dropped, run and clicked, with every address but the page's own out of reach."""
    pytest.importorskip("gradio")
    playwright = pytest.importorskip("playwright.sync_api")
    if BROWSER is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    Image.fromarray(picture).resize((400, 240)).save(tmp_path / "picture.png")
    page = demo_page.build_page(work_dirs)
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
            tab.get_by_role("option", name="one/iter_4.pth").click()
            tab.locator("#run").click()
            for side in ("first", "second"):
                tab.locator(f"#drawing-{side} img").wait_for()
            summaries = [tab.locator(f"#summary-{side}").inner_text() for side in ("first", "second")]
            tab.locator("#picture img").click()
            tab.locator("#pixel", has_text="for pixel (").wait_for()
            for side in ("first", "second"):
                tab.locator(f"#kernels-{side} img").nth(2).wait_for()
            browser.close()
    finally:
        page.close()
    assert summaries[0] == summaries[1], "the weights are the same"
