"""The networks from outside: timm's interface, torchvision's detectors, segmentation-models-pytorch's decoders."""

import subprocess
import sys
from pathlib import Path

import pytest
import timm
import torch
from timm.data import IMAGENET_DEFAULT_MEAN, resolve_model_data_config
from torch import nn

import mmlisa
from mmlisa.models.timm_models import NETWORKS

CONFIGS = Path(__file__).parents[2] / "configs"
# The smallest of each kind: a pyramid with a linear head, one with a hidden layer, a class token, other strides.
SMALL = ("lcnet_x0_25", "hylisanet_s", "flatten_deit_t", "castling_levit_128")


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def create(name: str, **options) -> nn.Module:
    return timm.create_model(name, **options).eval()


def test_timm_lists_them():
    assert timm.list_models("hylisanet*") == ["hylisanet_b", "hylisanet_s"]
    assert set(mmlisa.list_models()) == set(NETWORKS)
    assert mmlisa.list_models("flatten_swin_?") == ["flatten_swin_b", "flatten_swin_s", "flatten_swin_t"]
    named = {(network.backbone, network.arch) for network in NETWORKS.values()}
    from mmlisa.models import backbones

    assert named == {(name, arch) for name in backbones.__all__ for arch in getattr(backbones, name).arch_settings}


@pytest.mark.parametrize("name", NETWORKS)
def test_images_are_of_the_size_in_the_name(name):
    """384 pixels are evaluated whole, 224 after a crop of 7/8 (Swin, DeiT)."""
    cfg = timm.get_pretrained_cfg(name)
    size = 384 if name.startswith(("flatten", "pola")) and name.endswith("_384") else 224  # a LeViT-384 is as wide
    assert cfg.input_size == (3, size, size)
    assert cfg.crop_pct == (1.0 if size == 384 else 0.875)


def test_a_new_classifier_starts_small():
    head = create("lisanet_i").head
    assert head.fc.weight.std().item() == pytest.approx(0.02, rel=0.02)
    assert not head.fc.bias.any()


@pytest.mark.slow
def test_mmlisa_imports_nothing_and_create_model_no_detection_library():
    script = (
        "import sys, mmlisa\n"
        "assert not {'torch', 'timm', 'mmengine'} & set(sys.modules)\n"
        "for name in ('mmcv', 'mmdet', 'mmseg', 'mmpretrain'): sys.modules[name] = None\n"
        "mmlisa.create_model('hylisanet_s', features_only=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", SMALL)
def test_classifier_as_timm_has_them(name):
    model, image = create(name, num_classes=7), torch.rand(1, 3, 64, 72)
    with torch.no_grad():
        features = model.forward_features(image)
        assert features.shape[-1 if features.ndim == 3 else 1] == model.num_features
        expected = model.get_classifier()(model.forward_head(features, pre_logits=True))
        torch.testing.assert_close(model(image), expected)
        assert model(image).shape == (1, model.num_classes) == (1, 7)
        assert f"{model.default_cfg['classifier']}.weight" in model.state_dict()

        model.reset_classifier(5)
        assert model(image).shape == (1, 5)
        model.reset_classifier(0)
        assert isinstance(model.get_classifier(), nn.Identity)
        assert model(image).shape == (1, model.head_hidden_size)
        model.reset_classifier(0, "")
        assert torch.equal(model(image), model.forward_features(image))
        model.reset_classifier(3, "avg")
        assert model(image).shape == (1, 3)
    assert create(name, num_classes=0)(image).shape == (1, model.head_hidden_size)
    assert resolve_model_data_config(model)["mean"] == IMAGENET_DEFAULT_MEAN


def test_a_new_classifier_has_the_models_precision_and_device():
    model = create(SMALL[0]).bfloat16()
    model.reset_classifier(5)
    assert model.get_classifier().weight.dtype == torch.bfloat16
    meta = create(SMALL[0]).to("meta")
    meta.reset_classifier(5)
    assert meta.get_classifier().weight.is_meta


def test_average_pooling_leaves_the_class_token_out():
    model, image = create("flatten_deit_t", num_classes=0), torch.rand(1, 3, 64, 72)
    with torch.no_grad():
        tokens = model.forward_features(image)
        assert torch.equal(model(image), tokens[:, 0])
        for pool, expected in (("avg", tokens[:, 1:].mean(1)), ("max", tokens[:, 1:].amax(1))):
            model.reset_classifier(0, pool)
            assert torch.equal(model(image), expected)


@pytest.mark.parametrize("name", SMALL)
def test_features_come_with_what_feature_info_says(name):
    image = torch.rand(2, 4, 96, 64)
    whole = create(name, features_only=True, in_chans=4)
    reductions, channels = whole.feature_info.reduction(), whole.feature_info.channels()
    maps = whole(image)
    assert isinstance(maps, list)
    assert [tuple(m.shape[1:]) for m in maps] == [
        (c, -(-96 // r), -(-64 // r)) for c, r in zip(channels, reductions, strict=True)
    ]
    modules = dict(whole.named_modules())
    assert all(info["module"] in modules for info in whole.feature_info.info)
    last = create(name, features_only=True, in_chans=4, out_indices=(-1,))
    assert last.feature_info.channels() == [last(image)[0].shape[1]] == channels[-1:]
    assert last.feature_info.channels(len(last.feature_info) - 1) == channels[-1]


@pytest.mark.parametrize("features_only", [False, True])
def test_gradient_checkpointing_runs_the_blocks_twice(features_only):
    model, calls = create("lcnet_x0_25", features_only=features_only).train(), []
    model.backbone.stages[-1].downsample[-1].register_forward_pre_hook(lambda *_: calls.append(1))
    for enable, expected in ((True, 2), (False, 1)):
        model.set_grad_checkpointing(enable)
        calls.clear()
        maps = model(torch.rand(2, 3, 64, 64))
        (maps[-1] if features_only else maps).sum().backward()
        assert len(calls) == expected


def test_a_checkpoint_goes_from_classifier_to_features(tmp_path):
    """What mmpretrain saves, whose names are ours, under another number of classes and as features."""
    classifier, image = create("lcnet_x0_25"), torch.rand(1, 3, 64, 64)
    torch.save(dict(state_dict=classifier.state_dict(), meta={}), tmp_path / "lcnet.pth")
    features = mmlisa.create_model("lcnet_x0_25", pretrained=tmp_path / "lcnet.pth", features_only=True).eval()
    torch.testing.assert_close(features(image)[-1], classifier.forward_features(image))
    tuned = mmlisa.create_model("lcnet_x0_25", pretrained=tmp_path / "lcnet.pth", num_classes=3).eval()
    torch.testing.assert_close(tuned.forward_features(image), classifier.forward_features(image))
    overlay = dict(file=str(tmp_path / "lcnet.pth"))
    same = create("lcnet_x0_25", pretrained=True, pretrained_cfg_overlay=overlay)
    torch.testing.assert_close(same(image), classifier(image))
    with pytest.raises(ValueError, match="of another model"):
        mmlisa.create_model("esnet_x0_75", pretrained=tmp_path / "lcnet.pth")


SOFTMAX = dict(type="InteractiveAttention", landmarks=None, mix_before=False, mix_after=False)


@pytest.mark.parametrize(
    ("name", "host", "options", "side"),
    [
        ("flatten_swin_t", "swin_tiny_patch4_window7_224", dict(attn_type="SSSS"), 224),
        ("ivit_t", "caformer_s18", dict(attention=SOFTMAX), 64),
    ],
)
def test_weights_of_the_host_with_its_classifier(name, host, options, side, tmp_path):
    """With the host's own attention the logits are the host's."""
    theirs = create(host, num_classes=5)
    for p in theirs.parameters():
        nn.init.normal_(p, mean=float(p.ndim == 1), std=0.2 if p.ndim == 1 else p[0].numel() ** -0.5)
    torch.save(theirs.state_dict(), tmp_path / "host.pth")
    ours = mmlisa.create_model(name, num_classes=5, pretrained=tmp_path / "host.pth", **options).eval()
    image = torch.rand(1, 3, side, side)
    with torch.no_grad():
        expected = theirs(image)
        torch.testing.assert_close(ours(image), expected, rtol=1e-4, atol=1e-4 * expected.abs().max().item())


def test_weights_of_the_host_for_features_and_other_classes(tmp_path, monkeypatch):
    theirs = create("lcnet_050")
    torch.save(create("swin_tiny_patch4_window7_224", depths=(1, 1, 1, 1)).state_dict(), tmp_path / "swin.pth")
    monkeypatch.setattr("mmlisa.conversion.reading.timm.create_model", lambda name, pretrained: theirs)
    for options in (dict(features_only=True), dict(num_classes=3)):
        ours = mmlisa.create_model("lcnet_x0_5", pretrained="timm:lcnet_050.ra2_in1k", **options)
        assert torch.equal(ours.backbone.stem[0].weight, theirs.conv_stem.weight)
    with pytest.raises(ValueError, match="Swin weights have no place in LCNet"):
        mmlisa.create_model("lcnet_x0_5", pretrained=tmp_path / "swin.pth")


# One network per row of the table: the head is the row's.
@pytest.mark.parametrize(
    "name",
    [
        "lisanet_s",
        "hylisanet_s",
        "lisanet_i",
        "lisanet_v1_tiny",
        "flatten_swin_t",
        "flatten_swin_b_384",
        "flatten_pvt_t",
        "flatten_pvtv2_b0",
        "flatten_cswin_t",
        "flatten_deit_t",
        "ivit_t",
        "vit_t16_interactive",
        "castling_levit_128",
        "castling_deit_t",
        "castling_mvitv2_t",
        "mila_t",
        "h_vit3_b",
        "vit3_s",
        "pola_swin_b_384",
        "pola_pvt_t",
    ],
)
def test_parameters_are_those_of_the_imagenet_config(name):
    paper_tables = pytest.importorskip("research.paper_tables")
    stem, side = (name.removesuffix("_384"), "384") if name.endswith("_384") else (name, "")
    (config,) = CONFIGS.glob(f"imagenet/classifier_{stem}_[0-9]*e_imagenet{side}.py")
    theirs = paper_tables.build_on_meta(config.name).state_dict()
    with torch.device("meta"):
        ours = mmlisa.create_model(name).state_dict()
    shapes = {key: tensor.shape for key, tensor in theirs.items() if not key.startswith("data_preprocessor.")}
    assert {key: tensor.shape for key, tensor in ours.items()} == shapes


def test_torchvision_detector():
    """The recipe of docs/anywhere.md."""
    from torchvision.models.detection import FasterRCNN
    from torchvision.models.detection.rpn import AnchorGenerator
    from torchvision.ops import FeaturePyramidNetwork

    class Pyramid(nn.Module):
        out_channels = 16

        def __init__(self) -> None:
            super().__init__()
            self.body = mmlisa.create_model("lcnet_x0_25", features_only=True)
            self.fpn = FeaturePyramidNetwork(self.body.feature_info.channels(), self.out_channels)

        def forward(self, image):
            return self.fpn({str(i): m for i, m in enumerate(self.body(image))})

    anchors = AnchorGenerator(((8,), (16,), (32,), (64,)), ((0.5, 1.0, 2.0),) * 4)
    detector = FasterRCNN(Pyramid(), 3, rpn_anchor_generator=anchors, min_size=96, max_size=96)
    target = dict(boxes=torch.tensor([[8.0, 8.0, 60.0, 60.0]]), labels=torch.tensor([1]))
    losses = detector([torch.rand(3, 96, 96)] * 2, [target] * 2)
    sum(losses.values()).backward()
    assert all(p.grad is not None for p in detector.backbone.parameters())
    assert set(detector.eval()([torch.rand(3, 96, 96)])[0]) == {"boxes", "labels", "scores"}


def test_segmentation_models_pytorch():
    smp = pytest.importorskip("segmentation_models_pytorch")
    model = smp.Unet("tu-lcnet_x0_25", encoder_weights=None, classes=5, decoder_channels=(16, 16, 8, 8, 8))
    scores = model(torch.rand(2, 3, 64, 96))
    assert scores.shape == (2, 5, 64, 96)
    scores.mean().backward()
    assert all(p.grad is not None for p in model.encoder.parameters())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(name="lisanet"), "model 'lisanet' is unknown.*lisanet_s"),
        (dict(name="lisanet_s", pretrained=True), r"no weights of 'lisanet_s' are published.*timm:pvt_v2_b3\.in1k"),
        (dict(name="lcnet_x0_25", global_pool="token"), "global_pool='token'; it must be one of"),
        (dict(name="lcnet_x0_25", global_pool=""), "num_classes=1000 with global_pool=''"),
        (dict(name="lcnet_x0_25", features_only=True, out_indices=(4,)), r"out_indices=\(4,\)"),
    ],
)
def test_mistakes(options, message):
    with pytest.raises(ValueError, match=message):
        mmlisa.create_model(**options)
