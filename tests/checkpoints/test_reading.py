"""Damaged, hostile and senseless files: refused with one exception, and nothing runs."""

import contextlib
import errno
import io
import json
import pickle
import struct
import zipfile
from collections import Counter, OrderedDict

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn

from mmlisa.checkpoints import CheckpointError, add_checksum, load_checkpoint, reading


def saved(checkpoint, **options) -> bytes:
    stream = io.BytesIO()
    torch.save(checkpoint, stream, **options)
    return stream.getvalue()


def read(path, content):
    path.write_bytes(content)
    return load_checkpoint(path)


def test_a_file_that_is_none_or_is_missing_says_what_there_is(tmp_path):
    with pytest.raises(
        CheckpointError, match=r"not a checkpoint \(22 bytes\): it does not begin like a file of weights"
    ):
        read(tmp_path / "notes.pth", b"some notes in a file.\n")
    with pytest.raises(FileNotFoundError, match=r"epoch_2\.pth does not exist; its folder has notes\.pth"):
        load_checkpoint(tmp_path / "epoch_2.pth")
    with pytest.raises(FileNotFoundError, match="its folder does not exist either"):
        load_checkpoint(tmp_path / "no" / "epoch_2.pth")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"its folder has no \*\.pth"):
        load_checkpoint(tmp_path / "empty" / "epoch_2.pth")


def global_(module, name) -> bytes:
    return f"c{module}\n{name}\n".encode()


def text(value) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


TENSOR = global_("torch._utils", "_rebuild_tensor_v2")
STORAGE = b"(" + text("storage") + global_("torch", "FloatStorage") + text("0") + text("cpu") + b"K\x04tQ"


def archive(program: bytes, storage: bytes = bytes(16), compression=zipfile.ZIP_STORED) -> bytes:
    """A torch archive whose pickle is the program."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as file:
        file.writestr("archive/data.pkl", b"\x80\x02" + program + b".")
        file.writestr("archive/data/0", storage)
        file.writestr("archive/version", b"3\n")
    return stream.getvalue()


def number(value) -> bytes:
    data = pickle.encode_long(value)
    return b"\x8a" + bytes([len(data)]) + data


def tensor(offset, size, stride) -> bytes:
    """A dict with one tensor of four stored floats."""
    shape = b"".join(b"(" + b"".join(map(number, axis)) + b"t" for axis in (size, stride))
    return b"}" + text("weight") + TENSOR + b"(" + STORAGE + number(offset) + shape + b"\x89NtRs"


def test_the_programs_of_these_tests_are_what_torch_reads(tmp_path):
    content = archive(tensor(0, (2, 2), (2, 1)), np.arange(4, dtype="f4").tobytes())
    expected = torch.arange(4.0).view(2, 2)
    assert torch.equal(torch.load(io.BytesIO(content), weights_only=True)["weight"], expected)
    assert torch.equal(read(tmp_path / "ours.pth", content)["weight"], expected)


@pytest.mark.parametrize(
    ("offset", "size", "stride"),
    [
        (0, (10**6, 10**6), (0, 0)),  # a stride of zero: 4 TB in 16 bytes
        (0, (3, 2), (0, 1)),
        (0, (5,), (1,)),
        (1, (4,), (1,)),
        (0, (2,), (4,)),
        (2**63, (1,), (1,)),
        (-1, (1,), (1,)),
        (0, (-1,), (1,)),
        (0, (2,), (-1,)),
        (0, (2**62, 2**62), (1, 1)),
        (0, (1,) * 100, (1,) * 100),
        (0, (2, 2), (1,)),
    ],
)
def test_tensors_that_the_file_does_not_hold(tmp_path, offset, size, stride):
    with pytest.raises(CheckpointError):
        read(tmp_path / "bomb.pth", archive(tensor(offset, size, stride)))


@pytest.mark.parametrize(
    "program",
    [
        global_("os", "system") + text("true") + b"\x85R",
        global_("builtins", "eval") + text("1") + b"\x85R",
        global_("builtins", "getattr") + global_("torch", "Tensor") + text("set_") + b"\x86R",
        global_("torch", "load") + text("/tmp/x") + b"\x85R",
        global_("torch.hub", "load") + text("x") + b"\x85R",
        global_("torch.storage", "_load_from_bytes") + text("x") + b"\x85R",
        global_("torch._utils", "_rebuild_meta_tensor_no_storage") + b")R",
        global_("numpy", "dtype") + text("O") + b"\x85R",
        global_("numpy", "dtype") + text("V9999999999") + b"\x85R",
        # numpy.dtype with a state of the file's choosing: names, fields, sizes
        global_("numpy", "dtype") + text("f4") + b"\x85R(K\x03" + text("<") + b"NNNK\xffK\xffK\x3ftb",
        global_("numpy", "dtype") + text("f4") + b"\x85R(K\x03" + text("<") + b"N)}J\xff\xff\xff\x7fK\x01K\x00tb",
        # an array of another size than its bytes
        global_("numpy.core.multiarray", "_reconstruct")
        + global_("numpy", "ndarray")
        + b"K\x00\x85"
        + text("b")
        + b"\x87R(K\x01J\xff\xff\xff\x7f\x85"
        + global_("numpy", "dtype")
        + text("f4")
        + b"\x85R\x89"
        + text("abcd")
        + b"tb",
        global_("numpy.core.multiarray", "scalar")
        + global_("numpy", "dtype")
        + text("f8")
        + b"\x85R"
        + text("a")
        + b"\x86R",
        global_("mmengine.logging.history_buffer", "HistoryBuffer") + b")\x81}" + text("__class__") + b"Nsb",
        b"]" + b"\x85" * 300_000 + b"r\x00\x00\x00\x00}h\x00Ns",  # a key whose hash overflows the stack
    ],
)
def test_hostile_programs(tmp_path, program):
    with pytest.raises(CheckpointError):
        read(tmp_path / "bad.pth", archive(b"}" + text("x") + program + b"s"))
    with pytest.raises(CheckpointError):
        read(tmp_path / "bad.pkl", b"\x80\x02}" + text("x") + program + b"s.")


@pytest.mark.parametrize("name", ["config", "cfg"])
def test_the_code_that_mmengine_runs_is_left_out(tmp_path, name):
    """``Runner.resume`` passes ``meta['config']`` to ``Config.fromstring``, which executes it, and the inferencers of MMDetection
    and MMEngine ``meta['cfg']`` and ``message_hub['runtime_info']['cfg']``."""
    path, part = tmp_path / "config.pth", {name: "raise SystemExit('code ran')", "iter": 3}
    torch.save({"meta": part, "message_hub": {"runtime_info": dict(part)}, "state_dict": {}}, path)
    read = load_checkpoint(path)
    assert read["meta"] == read["message_hub"]["runtime_info"] == {"iter": 3}


@pytest.mark.parametrize("key", [2**60, -(2**60)])
def test_keys_that_can_be_made_to_collide(tmp_path, key):
    with pytest.raises(CheckpointError, match="a dict or set with a key of type int"):
        read(tmp_path / "keys.pth", archive(b"}" + number(key) + b"Ns"))


def test_a_large_number_in_the_pickle_takes_no_memory(tmp_path):
    """The standard unpickler makes room for as many references as the highest number that it is told to remember."""
    assert read(tmp_path / "memo.pth", archive(b"}" + text("x") + b"r\xff\xff\xff\xffNs")) == {"x": None}


@pytest.mark.parametrize("zipped", [True, False])
def test_both_of_torchs_formats_and_all_kinds_of_numbers(tmp_path, zipped):
    kinds = (
        torch.float32,
        torch.float64,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.int8,
        torch.bool,
        torch.complex64,
    )
    state = OrderedDict((str(kind), torch.randn(3, 4).to(kind)) for kind in kinds)
    state["transposed"], state["slice"] = torch.randn(3, 4).T, torch.randn(5, 5)[1:3, 2:]
    state["tied"] = state["slice"]
    state["empty"], state["scalar"] = torch.empty(0, 3), torch.tensor(2.5)
    state["parameter"] = nn.Parameter(torch.randn(3))
    path = tmp_path / "all.pth"
    torch.save({"state_dict": state, "meta": {"lr": 0.1, "betas": (0.9, 0.99), "who": {"a"}, "big": 2**70}}, path,
               _use_new_zipfile_serialization=zipped)  # fmt: skip
    loaded = load_checkpoint(path)
    assert loaded["meta"] == {"lr": 0.1, "betas": (0.9, 0.99), "who": {"a"}, "big": 2**70}
    assert list(loaded["state_dict"]) == list(state)
    for name, expected in state.items():
        assert loaded["state_dict"][name].dtype == expected.dtype
        assert torch.equal(loaded["state_dict"][name], expected.detach())


def test_safetensors_and_arrays(tmp_path):
    from safetensors.torch import save

    weights = {"a.weight": torch.randn(2, 3), "b": torch.randn(4).bfloat16()}
    loaded = read(tmp_path / "a.safetensors", save(weights))
    assert all(torch.equal(loaded[name], weights[name]) for name in weights)
    arrays = {"conv_w": np.random.rand(2, 3).astype("f4"), "step": np.int64(3)}
    arrays["by_columns"] = np.asfortranarray(arrays["conv_w"])
    for protocol in (2, 4, 5):
        loaded = read(tmp_path / "a.pdparams", pickle.dumps(arrays, protocol=protocol))
        assert all(np.array_equal(loaded[name], arrays[name]) for name in arrays)


@pytest.mark.parametrize("kind", [">f4", ">i8", "f4,i4", "S3", "O", "M8[s]"])
def test_arrays_of_another_byte_order_or_kind_are_refused(tmp_path, kind):
    torch.save({"x": np.zeros(3, kind)}, tmp_path / "a.pth")
    with pytest.raises(CheckpointError):
        load_checkpoint(tmp_path / "a.pth")


def test_entries_that_are_no_weights(tmp_path):
    for state in ({3: torch.ones(1)}, {"a": [1.0]}, {"a": "text"}, ["a"]):
        with pytest.raises(CheckpointError, match="state_dict"):
            read(tmp_path / "nonsense.pth", saved({"state_dict": state}))
    with pytest.raises(CheckpointError, match="holds a list"):
        read(tmp_path / "list.pth", saved([torch.ones(1)]))


def test_compressed_members_are_refused(tmp_path):
    bomb = archive(tensor(0, (2, 2), (2, 1)), bytes(10**7), zipfile.ZIP_DEFLATED)
    with pytest.raises(CheckpointError, match="larger than the file"):
        read(tmp_path / "bomb.pth", bomb)


def test_a_stream_that_declares_more_than_it_holds(tmp_path):
    content = saved({"weight": torch.zeros(4)}, _use_new_zipfile_serialization=False)
    count = b"K\x04"
    assert content.count(count + b"N") == 1  # the storage's number of elements
    bomb = content.replace(count + b"N", b"J\xff\xff\xff\x7fN")
    with pytest.raises(CheckpointError, match="storages larger than the file"):
        read(tmp_path / "stream.pth", bomb)


@pytest.mark.parametrize("part", ["state_dict", "ema_state_dict", "optimizer"])
def test_the_checksum_covers(tmp_path, part):
    checkpoint = {name: {"a": torch.ones(2)} for name in ("state_dict", "ema_state_dict", "optimizer")}
    add_checksum(checkpoint)
    checkpoint[part]["a"][1] = 2
    with pytest.raises(CheckpointError, match="checksum"):
        read(tmp_path / "changed.pth", saved(checkpoint))


def test_checksum_of_tensors(tmp_path):
    """A change that the archive's own checksums cannot see: the file was rewritten."""
    checkpoint = {"state_dict": nn.Linear(3, 3).state_dict(), "optimizer": {"state": {0: {"step": torch.tensor(3.0)}}}}
    add_checksum(checkpoint)
    read(tmp_path / "whole.pth", saved(checkpoint))
    checkpoint["optimizer"]["state"][0]["step"] += 1
    with pytest.raises(CheckpointError, match="checksum"):
        read(tmp_path / "changed.pth", saved(checkpoint))


def _checkpoint() -> dict:
    torch.manual_seed(0)
    checkpoint = {"state_dict": nn.Linear(6, 5).state_dict(), "meta": {"iter": 2}, "optimizer": {"lr": 0.1}}
    add_checksum(checkpoint)
    return checkpoint


FILES = {
    "archive": saved(_checkpoint()),
    "stream": saved(_checkpoint(), _use_new_zipfile_serialization=False),
    "pickle": pickle.dumps({name: value.numpy() for name, value in nn.Linear(6, 5).state_dict().items()}),
}


def flattened(checkpoint):
    return json.dumps(checkpoint, default=lambda value: value.tolist(), sort_keys=True)


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.fuzz
@given(data=st.data())
def test_damage_of_any_kind_is_one_exception(tmp_path, kind, data):
    """Cut, flipped and overwritten files. Torch's files carry a checksum: what is read is what was saved."""
    content = bytearray(FILES[kind])
    for _ in range(data.draw(st.integers(1, 4), "changes")):
        position = data.draw(st.integers(0, len(content) - 1), "position")
        change = data.draw(st.sampled_from(["flip", "cut", "byte", "drop", "insert"]), "change")
        if change == "flip":
            content[position] ^= 1 << data.draw(st.integers(0, 7), "bit")
        elif change == "cut":
            del content[max(position, 1) :]
        elif change == "byte":
            content[position] = data.draw(st.integers(0, 255), "value")
        elif change == "drop" and len(content) > 1:
            del content[position]
        elif change == "insert":
            content.insert(position, data.draw(st.integers(0, 255), "value"))
    try:
        loaded = read(tmp_path / "damaged.pth", bytes(content))
    except CheckpointError:
        return
    if kind == "archive":
        assert flattened(loaded) == flattened(load_whole(tmp_path, kind))


def load_whole(folder, kind):
    return read(folder / "whole.pth", FILES[kind])


@pytest.mark.parametrize("bit", range(0, 8, 3))
def test_a_flipped_bit_is_never_loaded_silently(tmp_path, bit):
    whole = flattened(load_whole(tmp_path, "archive"))
    content, silent = FILES["archive"], []
    for position in range(0, len(content), 7):
        damaged = bytearray(content)
        damaged[position] ^= 1 << bit
        try:
            loaded = read(tmp_path / "flipped.pth", bytes(damaged))
        except CheckpointError:
            continue
        if flattened(loaded) != whole:
            silent.append(position)
    assert not silent


OPERATIONS = [
    *(
        bytes([code])
        for code in b"(0.12NRQabdehijlopqrstuVX]})\x80\x81\x82\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8f\x90\x93\x94"
    ),
    *(b"K\x00", b"K\x01", b"K\x7f", b"J\xff\xff\xff\xff", b"q\x00", b"h\x00", b"G" + bytes(8)),
    *(text(value) for value in ("storage", "0", "f4", "<", "cpu", "min", "latin1")),
    *(global_("torch", f"{kind}Storage") for kind in ("Float", "Long", "Bool")),
    *(global_("numpy", name) for name in ("dtype", "ndarray")),
    *(global_("numpy.core.multiarray", name) for name in ("_reconstruct", "scalar")),
    *(global_("torch._utils", name) for name in ("_rebuild_tensor_v2", "_rebuild_tensor_v3", "_rebuild_parameter")),
    *(global_("collections", "OrderedDict"), global_("_codecs", "encode"), global_("builtins", "set")),
    *(global_("mmengine.logging.history_buffer", "HistoryBuffer"), global_("torch", "Size"), STORAGE),
]


@pytest.mark.fuzz
@given(program=st.lists(st.sampled_from(OPERATIONS), max_size=30))
@example(program=[global_("torch", "Size"), b"]", b"\x85", b"R"])
def test_any_program_of_known_instructions(tmp_path, program):
    """Pickles made of what the reader knows: an answer or the one exception, never a crash."""
    with contextlib.suppress(CheckpointError):
        read(tmp_path / "program.pth", archive(b"}" + text("x") + b"".join(program) + b"s"))


def test_milestones_of_a_step_schedule(tmp_path):
    """MultiStepLR keeps its milestones as a Counter, in PyTorch as in MMEngine."""
    optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=1.0)
    state = torch.optim.lr_scheduler.MultiStepLR(optimizer, [8, 11, 11]).state_dict()
    torch.save({"state_dict": {}, "param_schedulers": [state]}, tmp_path / "a.pth")
    found = load_checkpoint(tmp_path / "a.pth")["param_schedulers"][0]["milestones"]
    assert type(found) is Counter
    assert found == Counter({8: 1, 11: 2})


@pytest.mark.parametrize("counts", [Counter({1: "many"}), Counter({(1, 2): 1})])
def test_counters_of_something_else_are_refused(tmp_path, counts):
    torch.save({"state_dict": {}, "counts": counts}, tmp_path / "a.pth")
    with pytest.raises(CheckpointError):
        load_checkpoint(tmp_path / "a.pth")


@pytest.mark.parametrize(
    "error",
    [
        PermissionError(errno.EACCES, "Permission denied"),
        OSError(errno.EIO, "Input/output error"),
        OSError(errno.ESTALE, "Stale file handle"),
        torch.cuda.OutOfMemoryError("CUDA out of memory"),
    ],
)
def test_errors_of_the_machine_are_not_those_of_the_file(tmp_path, monkeypatch, error):
    torch.save({}, tmp_path / "file.pth")

    def fail(*_):
        raise error

    monkeypatch.setattr(reading, "_read", fail)
    with pytest.raises(type(error), match=error.args[-1]):
        load_checkpoint(tmp_path / "file.pth")
