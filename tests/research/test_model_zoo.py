"""The model zoo: what a config's first comment says, and an index that MIM reads."""

from pathlib import Path

import pytest
import yaml
from modelindex.load_model_index import load
from modelindex.models.ModelIndex import ModelIndex

import model_zoo
from mmlisa import config_path

ROOT = Path(__file__).parents[2]
ENTRIES = yaml.safe_load((ROOT / "configs" / "metafile.yml").read_text(encoding="utf-8"))["Models"]


def test_an_entry_and_its_line_on_the_page():
    path = Path(config_path("classifier_flatten_deit_t_300e_imagenet.py"))
    entry = model_zoo.to_entry(path)
    (shipped,) = [one for one in load(str(ROOT / "model-index.yml")).models if one.name == path.stem]
    assert entry["Metadata"]["Parameters"] == shipped.metadata.parameters == 6_191_272
    assert entry["Metadata"]["FLOPs"] == shipped.metadata.flops == pytest.approx(1.145e9, rel=1e-3)
    line = (
        "| `classifier_flatten_deit_t_300e_imagenet`<br>FLatten-DeiT-T, ImageNet-1K, 300 epochs | 6.191 M | 1.145 G "
        "| 74.1% top-1 (FLatten, Table 8) | random weights |"
    )
    assert line in model_zoo.to_markdown().splitlines()


@pytest.mark.nightly
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["Name"])
def test_every_entry_is_counted_again(entry):
    assert model_zoo.to_entry(ROOT / entry["Config"]) == entry


def test_the_index_is_what_mim_reads():
    index = load(str(ROOT / "model-index.yml"))
    assert isinstance(index, ModelIndex)
    index.build_models_with_collections()
    models = {model.name: model for model in index.models}
    assert models["mask_rcnn_flatten_swin_t_1x_coco"].results[0].metrics["box AP"] == 44.2
    assert all((ROOT / model.config).is_file() for model in models.values())
    assert all(model.results is None or "paper" in model.results[0].dataset for model in models.values())
    assert len({one.paper["URL"] for one in index.collections}) == 7  # as many as CITATION.cff has
