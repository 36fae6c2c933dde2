"""No code from data: nothing here runs text, starts a shell or unpickles what it did not write."""

import ast
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted(path for folder in ("mmlisa", "tools") for path in (ROOT / folder).rglob("*.py"))
RUN_TEXT = ("eval", "exec", "compile", "__import__")
UNPICKLE = (
    *(
        f"{module}.{name}"
        for module in ("pickle", "cPickle", "dill", "cloudpickle")
        for name in ("load", "loads", "Unpickler")
    ),
    *(
        "joblib.load",
        "shelve.open",
        "pandas.read_pickle",
        "marshal.loads",
        "torch.jit.load",
        "torch.hub.load",
    ),
)
SHELL = ("os.system", "os.popen", "commands.getoutput", "subprocess.getoutput", "subprocess.getstatusoutput")
SAFE = {"shell": "False", "allow_pickle": "False", "weights_only": "True"}  # the only values of these options
YAML = ("yaml.load", "yaml.load_all", "yaml.unsafe_load", "yaml.full_load")


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Every call with the dotted name of what is called, aliases of imports resolved."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.asname: alias.name for alias in node.names if alias.asname}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            first, *rest = ast.unparse(node.func).split(".")
            yield ".".join([names.get(first, first), *rest]), node


def dangers(source: str) -> Iterator[str]:
    for name, call in calls(ast.parse(source)):
        keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
        runs = name.removeprefix("builtins.") in RUN_TEXT or name in (*UNPICKLE, *SHELL, *YAML)
        runs = runs or (name == "torch.load" and "weights_only" not in keywords)
        if runs or any(keywords.get(option, safe) != safe for option, safe in SAFE.items()):
            yield name


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_code_from_data(path):
    assert list(dangers(path.read_text())) == []


@pytest.mark.parametrize(
    "source",
    [
        "eval(x)",
        "exec(open(f).read())",
        "import builtins\nbuiltins.eval(x)",
        "import os\nos.system(x)",
        "from os import system as run\nrun(x)",
        "import subprocess\nsubprocess.run(x, shell=True)",
        "from subprocess import run\nrun(x, shell=flag)",
        "import yaml\nyaml.load(f, Loader=yaml.Loader)",
        "import pickle\npickle.load(f)",
        "from pickle import loads\nloads(b)",
        "import pickle as p\np.Unpickler(f).load()",
        "import torch\ntorch.load(f)",
        "import torch as t\nt.load(f, weights_only=False)",
        "import numpy as np\nnp.load(f, allow_pickle=True)",
    ],
)
def test_the_search_finds(source):
    assert list(dangers(source))


def test_the_search_passes_over_harmless_calls():
    harmless = "model.eval()\nre.compile(x)\nimport yaml\nyaml.safe_load(f)\nimport numpy as np\nnp.load(f, allow_pickle=False)"
    harmless += "\nimport torch\ntorch.load(f, weights_only=True)"
    assert list(dangers(harmless)) == []


# What the three libraries, MMEngine and mmcv execute, unpickle or load, by file, and the row of docs/security.md that closes it.
_CONFIG, _MEMORY, _READER = (
    "config, which is trusted",
    "what this process or its group wrote",
    "the reader of checkpoints",
)
_WEIGHTS, _PLAIN = "torch.load reads weights only", "NumPy without pickles"
ROADS = {
    "mmengine/config/config.py": ("compile eval exec", _CONFIG),
    "mmengine/dataset/base_dataset.py": ("pickle.loads", _MEMORY),
    "mmengine/dist/dist.py": ("pickle.load pickle.loads", _MEMORY),
    "mmengine/fileio/handlers/pickle_handler.py": ("pickle.load", "pickles are refused"),
    "mmengine/fileio/handlers/yaml_handler.py": ("yaml.load", "read without tags"),
    "mmengine/runner/checkpoint.py": ("torch.load mmengine.utils.dl_utils.load_url", _READER),
    "mmengine/utils/dl_utils/hub.py": ("torch.load", _READER),
    "mmcv/cnn/rfsearch/search.py": ("eval", _CONFIG),
    "mmcv/ops/nms.py": ("eval", _CONFIG),
    "mmdet/datasets/openimages.py": ("numpy.load", "refused"),
    "mmdet/datasets/transforms/text_transformers.py": ("from_pretrained", _WEIGHTS),
    "mmdet/evaluation/functional/class_names.py": ("eval", _CONFIG),
    "mmdet/evaluation/metrics/base_video_metric.py": ("pickle.load", _MEMORY),
    "mmdet/models/dense_heads/atss_vlfusion_head.py": ("from_pretrained", _WEIGHTS),
    "mmdet/models/language_models/bert.py": ("from_pretrained", _WEIGHTS),
    "mmdet/models/task_modules/tracking/camera_motion_compensation.py": ("eval", _CONFIG),
    "mmdet/utils/dist_utils.py": ("pickle.loads", _MEMORY),
    "mmseg/datasets/transforms/loading.py": ("numpy.load", _PLAIN),
    "mmseg/evaluation/metrics/citys_metric.py": ("numpy.load", _PLAIN),
    "mmseg/models/losses/utils.py": ("numpy.load", _PLAIN),
    "mmseg/utils/class_names.py": ("eval", _CONFIG),
    "mmseg/utils/io.py": ("numpy.load pickle.loads", "decode_backend='pickle' is refused"),
    "mmseg/utils/tokenizer.py": ("from_pretrained", _WEIGHTS),
    "mmpretrain/apis/multimodal_retrieval.py": ("torch.load", _WEIGHTS),
    "mmpretrain/apis/utils.py": ("from_pretrained", _WEIGHTS),
    "mmpretrain/datasets/cifar.py": ("pickle.loads", "compared with the MD5 of the published file"),
    "mmpretrain/datasets/transforms/processing.py": ("eval", _CONFIG),
    "mmpretrain/engine/hooks/swav_hook.py": ("torch.load", _WEIGHTS),
    "mmpretrain/models/classifiers/hugging_face.py": ("from_pretrained", _WEIGHTS),
    "mmpretrain/models/multimodal/blip2/Qformer.py": ("from_pretrained", _WEIGHTS),
    "mmpretrain/models/multimodal/ram/gradio_demo.py": ("torch.load", _WEIGHTS),
    "mmpretrain/models/multimodal/ram/openset_utils.py": ("torch.load", _WEIGHTS),
    "mmpretrain/models/multimodal/ram/ram.py": ("pickle.load", "refused"),
    "mmpretrain/models/retrievers/image2image.py": ("torch.load", _WEIGHTS),
    "mmpretrain/models/utils/huggingface.py": ("from_pretrained", _WEIGHTS),
    "mmpretrain/models/utils/tokenizer.py": ("from_pretrained", _WEIGHTS),
    "mmpretrain/models/utils/vector_quantizer.py": ("torch.load", _WEIGHTS),
}
_LOADS = (*UNPICKLE, *YAML, "torch.load", "numpy.load", "mmengine.utils.dl_utils.load_url")
_LIKELY = re.compile(
    r"\b(eval|exec|compile|__import__|loads?|load_all|load_url|Unpickler|from_pretrained|trust_remote_code)\b"
)


def roads(source: str) -> set[str]:
    found = set()
    for name, call in calls(ast.parse(source)):
        if name.removeprefix("builtins.") in RUN_TEXT or name in _LOADS:
            found.add(name)
        if name.endswith(".from_pretrained"):
            found.add("from_pretrained")
        if any(keyword.arg == "trust_remote_code" for keyword in call.keywords):
            found.add("trust_remote_code")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("library", ["mmengine", "mmcv", "mmdet", "mmseg", "mmpretrain"])
def test_the_libraries_have_no_other_road(library):
    spec = find_spec(library)
    if spec is None:
        pytest.skip("not installed")
    root = Path(spec.origin).parent
    for path in root.rglob("*.py"):
        source = path.read_text(encoding="utf-8", errors="replace")
        if ".mim" not in path.parts and _LIKELY.search(source):
            name = path.relative_to(root.parent).as_posix()
            assert roads(source) <= set(ROADS.get(name, ("", ""))[0].split()), name
