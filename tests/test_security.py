"""No code from data: nothing here runs text, starts a shell or unpickles what it did not write."""

import ast
from collections.abc import Iterator
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
