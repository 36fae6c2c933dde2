"""Small files that ask for gigabytes or for years, each read under a limit of memory and processor time."""

import io
import json
import pickle
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

# Imports once, then reads each file in a child process. The limits leave room for what a file of a megabyte justifies.
READER = """
import json, os, resource, sys
from mmlisa.checkpoints import load_checkpoint

def read(path):
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 500 * 2**20,) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (int(sum(os.times()[:2])) + 60,) * 2)
    try:
        load_checkpoint(path)
        return "read", None, ""
    except Exception as error:
        return type(error).__name__, type(error.__cause__).__name__, str(error)[-150:]

for path in sys.argv[1:]:
    out, into = os.pipe()
    if not os.fork():
        os.write(into, json.dumps(read(path)).encode())
        os._exit(0)
    os.close(into)
    print(os.read(out, 10_000).decode() or json.dumps(["killed", None, str(os.wait()[1])]), flush=True)
"""


def global_(module, name) -> bytes:
    return f"c{module}\n{name}\n".encode()


def text(value) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def number(value) -> bytes:
    data = pickle.encode_long(value)
    return b"\x8a" + bytes([len(data)]) + data


def put(index) -> bytes:
    return b"r" + struct.pack("<I", index)


def get(index) -> bytes:
    return b"j" + struct.pack("<I", index)


def archive(program: bytes, members=()) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        file.writestr("archive/data.pkl", b"\x80\x02" + program + b".")
        for name, content in dict(members).items():
            file.writestr(name, content)
    return stream.getvalue()


def entries(values) -> bytes:
    """A dict whose values, each a program, have the keys 0, 1, …"""
    return b"}(" + b"".join(number(i) + value for i, value in enumerate(values)) + b"u"


def called(function, *arguments) -> bytes:
    return function + b"(" + b"".join(arguments) + b"tR"


ENCODE, LATIN = global_("_codecs", "encode"), text("latin1")
LONG_TEXT = text("a" * 500_000) + put(0)
LONG_LIST = b"](" + b"".join(number(i) for i in range(50_000)) + b"e" + put(0)
COPIES = 20_000
COLLIDING = [number(i * (2**61 - 1)) for i in range(60_000)]  # all have the hash 0


def kept(steps) -> bytes:
    """A dict with a list of the values that the steps leave behind."""
    return b"}" + text("x") + b"](" + b"".join(steps) + b"es"


def doubled_through(function) -> bytes:
    """A text that a function joins with itself 33 times."""
    steps = (called(function, get(i), get(i)) + put(i + 1) for i in range(33))
    return kept([text("cpu") + put(0), *steps])


def nested_key(depth) -> bytes:
    """A key of tuples, each of which holds the one before twice: its hash takes 2 ** depth steps."""
    steps = (get(i) + get(i) + b"\x86" + put(i + 1) for i in range(depth))
    return kept([b"K\x01" + put(0), *steps]) + get(depth) + b"K\x01s"


def stream_of_a_large_storage() -> bytes:
    import torch

    stream = io.BytesIO()
    torch.save({"weight": torch.zeros(4)}, stream, _use_new_zipfile_serialization=False)
    return stream.getvalue().replace(b"K\x04N", number(2**31) + b"N", 1)


def array(length) -> bytes:
    """The reconstruction and the state of an array of bytes, whose content stands under 0."""
    empty = called(
        global_("numpy.core.multiarray", "_reconstruct"), global_("numpy", "ndarray"), b"K\x00\x85", text("b")
    )
    dtype = (
        called(global_("numpy", "dtype"), text("u1"), b"\x89\x88") + b"(K\x03" + text("|") + b"NNNJ\xff\xff\xff\xff" * 1
    )
    return empty + b"(K\x01" + number(length) + b"\x85" + dtype + b"J\xff\xff\xff\xffK\x00tb\x89" + get(0) + b"tb"


BOMBS = {
    "a text that is doubled": doubled_through(global_("torch", "device")),
    "copies of a text": entries([called(ENCODE, LONG_TEXT, LATIN), *[called(ENCODE, get(0), LATIN)] * COPIES]),
    "copies of a list": entries([LONG_LIST, *[called(global_("builtins", "set"), get(0))] * COPIES]),
    "copies into an array": entries([called(ENCODE, LONG_TEXT, LATIN) + put(0), *[array(500_000)] * 8_000]),
    "a nested key": nested_key(60),
    "a deep key": b"}" + b"]" + b"\x85" * 300_000 + b"K\x01s",
    "colliding keys": b"}(" + b"".join(key + b"N" for key in COLLIDING) + b"u",
    "a set of colliding numbers": entries([called(global_("builtins", "set"), b"](" + b"".join(COLLIDING) + b"e")]),
    "a bytearray by its length": b"}" + text("x") + b"\x96" + struct.pack("<Q", 2**33) + b"s",
    "a bytearray": entries([called(global_("builtins", "bytearray"), number(2**33))]),
    "a tensor by its size": entries([called(global_("torch", "FloatTensor"), number(2**31))]),
    "a large number to remember": b"}K\x01" + put(2**32 - 1) + b"K\x02s",
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory) -> dict[str, list[str]]:
    """For each bomb the exception, its cause and the message."""
    folder = tmp_path_factory.mktemp("bombs")
    for i, program in enumerate(BOMBS.values()):
        (folder / f"{i}.pth").write_bytes(archive(program))
    (folder / "stream.pth").write_bytes(stream_of_a_large_storage())
    paths = [*(str(folder / f"{i}.pth") for i in range(len(BOMBS))), str(folder / "stream.pth")]
    assert max(Path(path).stat().st_size for path in paths) < 3 * 2**20
    done = subprocess.run([sys.executable, "-c", READER, *paths], capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr[-500:]
    return dict(zip([*BOMBS, "stream"], map(json.loads, done.stdout.splitlines()), strict=True))


@pytest.mark.parametrize("name", [name for name in BOMBS if name != "a large number to remember"])
def test_bombs_are_refused_before_they_go_off(outcomes, name):
    error, cause, message = outcomes[name]
    assert error == "CheckpointError", (error, message)
    assert cause in ("ValueError", "TypeError", "UnsafePickleError"), message  # and not a memory error
    assert "alloc" not in message
    assert "instruction" not in message  # refused for what it asks, not for how the test wrote it


def test_a_stream_that_declares_a_large_storage(outcomes):
    assert outcomes["stream"][:2] == ["CheckpointError", "ValueError"]
    assert "larger than the file" in outcomes["stream"][2]


def test_a_large_number_to_remember_takes_no_memory(outcomes):
    assert outcomes["a large number to remember"][0] == "read"
