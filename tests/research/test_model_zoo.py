"""The model zoo: what a config's first comment says, what is counted, and an index that MIM reads."""

from pathlib import Path

import pytest
from modelindex.load_model_index import load
from modelindex.models.ModelIndex import ModelIndex

from mmlisa import config_path
from research import model_zoo
from research.paper_tables import Row, macs, params

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("name", "title", "paper", "source", "metrics"),
    [
        (
            "mask_rcnn_hylisanet_s_1x_coco.py",
            "Mask R-CNN, HyLiSANet-S, 1x",
            "box AP 47.7, mask AP 42.6",
            "LiSA journal version, Table 9",
            {"box AP": 47.7, "mask AP": 42.6},
        ),
        (
            "classifier_flatten_cswin_t_300e_imagenet.py",
            "FLatten-CSwin-T, ImageNet-1K, 300 epochs",
            "83.1% top-1, with averaged weights",
            "FLatten, Table 8",
            {"Top 1 Accuracy": 83.1},
        ),
        (
            "upernet_ivit_t_160k_ade20k.py",
            "UperNet, iViT-T, 160k",
            "mIoU 49.7, multi-scale",
            "iViT, Tables 7 and 10",
            {"mIoU": 49.7},
        ),
        ("upernet_hylisanet_b_160k_ade20k.py", "UperNet, HyLiSANet-B, 160k", "", "", {}),
        (
            "semantic_fpn_castling_lcnet_l_80k_ade20k.py",
            "Semantic FPN on Castling-LCNet-ViT-L, 80k",
            "",
            "",
            {},
        ),
    ],
)
def test_reads_a_configs_first_comment(name, title, paper, source, metrics):
    assert model_zoo.read_header(Path(config_path(name))) == (title, paper, source)
    assert model_zoo.read_metrics(paper) == metrics


def test_a_row_of_the_same_model_lends_its_numbers(monkeypatch):
    config = "classifier_flatten_deit_t_300e_imagenet.py"
    row = Row("Table 8", "FLatten-DeiT-T", config, (3, 224, 224), (params("6.1 M"), macs("1.1 G")))
    another = Row("Table 8", "another", config, (3, 192, 192), (params("7 M"),))
    counted = {model_zoo._key(r.input, c): (r, c) for r in (row, another) for c in [model_zoo._count(r.model, r.input)]}
    monkeypatch.setattr(model_zoo, "_rows_by_counts", lambda: counted)
    (entry,) = model_zoo.evaluate(ROOT, [ROOT / "configs" / "imagenet" / config])
    assert (entry.paper_params, entry.paper_macs, entry.params) == ("6.1 M", "1.1 G", 6_191_272)
    assert entry.macs == pytest.approx(1.145e9, rel=1e-3)
    page = model_zoo.to_markdown([entry], {"backbones": {}, "detectors": {}}, "")
    assert "| 6.1 M / 6.191 M | 1.1 G / 1.145 G | 74.1% top-1 (FLatten, Table 8) | – | random weights |" in page


def test_a_row_names_the_file_that_a_training_starts_from(monkeypatch):
    monkeypatch.setattr(model_zoo, "_rows_by_counts", dict)
    (entry,) = model_zoo.evaluate(ROOT, [ROOT / "configs" / "video" / "classifier_hylisanet_s_110e_kinetics400.py"])
    assert entry.weights == "work_dirs/hylisanet_s_inflated.pth"


def test_a_network_with_another_operator_has_no_time_of_the_benchmark(monkeypatch):
    monkeypatch.setattr(model_zoo, "_rows_by_counts", dict)
    names = (
        "imagenet/classifier_flatten_swin_t",
        "ablations/classifier_swin_t_efficient",
        "ablations/classifier_flatten_swin_t_ssss",
    )
    entries = model_zoo.evaluate(ROOT, [ROOT / "configs" / f"{name}_300e_imagenet.py" for name in names])
    rows = {("FLatten-Swin-T", "224x224"): {"seconds": 0.1, "peak_bytes": 1e7}}
    shown = [model_zoo._time_and_memory(entry, {"backbones": rows, "detectors": {}}) for entry in entries]
    assert shown == ["100 ms, 10 MB", "", ""]


def test_the_index_is_what_mim_reads():
    index = load(str(ROOT / "model-index.yml"))
    assert isinstance(index, ModelIndex)
    index.build_models_with_collections()
    models = {model.name: model for model in index.models}
    swin = models["mask_rcnn_flatten_swin_t_1x_coco"]
    assert (ROOT / swin.config).is_file()
    assert swin.metadata.parameters == pytest.approx(49e6, rel=0.02)  # the paper has 49 M
    assert swin.results[0].metrics["box AP"] == 44.2
    assert all(model.results is None or "paper" in model.results[0].dataset for model in models.values())
