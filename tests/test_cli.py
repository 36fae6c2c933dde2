"""The command ``mmlisa``: argument types and exit statuses. tests/test_package.py runs the help of every command."""

import argparse
import errno

import pytest

from mmlisa import cli
from mmlisa.commands import infer
from mmlisa.commands import test as test_command
from mmlisa.errors import UserError
from mmlisa.runtime import InputError


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        (cli.existing_path, "{0}/none.jpg", "none.jpg' does not exist"),
        (cli.config_file, "{0}/none.py", "none.py' does not exist"),
        (cli.config_file, "{0}/w.pth", "is not a config"),
        (cli.config_file, "{0}", "is a folder"),
        (cli.config_file, "mask_rcnn_hylisanet_dmo.py", "mask_rcnn_hylisanet_demo.py"),
        (cli.config_file, "mmdet::retinanet_r50_fpn_1x_coc", "retinanet_r50_fpn_1x_coco.py"),
        (cli.config_file, "nosuch::a.py", "nosuch is not installed"),
        (cli.weights_source, "{0}/c.py", "is a config"),
        (cli.weights_source, "{0}", "is a folder"),
        (cli.weights_source, "{0}/none.pth", "none.pth' does not exist"),
        (cli.fraction, "50", "'50' is not a number from 0 to 1"),
        (cli.positive_int, "0", "'0' is not a whole number from 1"),
        (cli.key_value, "a.b", "'a.b' is not of the form KEY=VALUE"),
        (cli.key_value, "a=[dict(type='B')]", "KEY.type=NAME"),
    ],
)
def test_types_refuse(kind, text, message, tmp_path):
    (tmp_path / "w.pth").touch()
    with pytest.raises(argparse.ArgumentTypeError) as error:
        kind(text.format(tmp_path))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("mask_rcnn_hylisanet_demo", "configs/mask_rcnn_hylisanet_demo.py"),
        ("mmdet::retinanet/retinanet_r50_fpn_1x_coco.py", "mmdet/.mim/configs/retinanet/retinanet_r50_fpn_1x_coco.py"),
        (
            "mmseg::unet-s5-d16_fcn_4xb4-40k_hrf-256x256",
            "mmseg/.mim/configs/unet/unet-s5-d16_fcn_4xb4-40k_hrf-256x256.py",
        ),
    ],
)
def test_a_config_is_found_by_its_name(name, file):
    assert cli.config_file(name).endswith(file)


def test_predictions_are_written_as_pickle_only():
    with pytest.raises(UserError, match=r"--out: 'x\.txt'"):
        test_command.main(argparse.Namespace(out="x.txt"))


def test_options_may_stand_between_the_files(tmp_path):
    for name in ("c.py", "w.pth", "m.onnx", "a.png", "b.png"):
        (tmp_path / name).touch()
    c, w, m, a, b = (f"{tmp_path}/{name}" for name in ("c.py", "w.pth", "m.onnx", "a.png", "b.png"))
    parse = infer.parser().parse_intermixed_args
    assert infer.sort_files(parse([c, w, "--out-dir", "out", a, "--score-thr", "0.5", b]).files) == (c, w, [a, b])
    assert infer.sort_files(parse([m, "--json", "a.json", a, b]).files) == (None, m, [a, b])
    for words in ([c, w], [m], [a, w, b], [m, a, "--device", "cuda"]):
        with pytest.raises(UserError, match=r"IMAGE|config|--device"):
            infer.main(parse(words))


def _run(error: BaseException, **options) -> None:
    def main(args):
        raise error

    cli.run(main, argparse.Namespace(**{"debug": False, "verbose": False, **options}))


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (FileNotFoundError(errno.ENOENT, "No such file", "a.py"), 2, "error: [Errno 2] No such file: 'a.py'\n"),
        (ChildProcessError("the training failed"), 1, "error: the training failed\n"),
        (OSError(errno.ENOSPC, "the disk is full"), 1, "error: [Errno 28] the disk is full\n"),
        (UserError("a mistake"), 2, "error: a mistake\n"),
        (InputError("a mistake"), 2, "error: a mistake\n"),
        (FloatingPointError("not finite"), 1, "error: not finite\n"),
        (
            ModuleNotFoundError("No module named 'jinja2'", name="jinja2"),
            2,
            "error: the package jinja2 is not installed: pip install 'mmlisa[fit]'\n",
        ),
        (ImportError('Please run "pip install tensorboard"'), 2, 'error: Please run "pip install tensorboard"\n'),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_exit_statuses(capsys, error, status, message):
    with pytest.raises(SystemExit) as end:
        _run(error)
    assert end.value.code == status
    assert capsys.readouterr().err == message


def test_errors_of_libraries_and_bugs_keep_their_traceback_and_with_debug_all():
    bug = ImportError("cannot import name 'a' from 'mmlisa'", name="mmlisa")
    for error, options in ((ValueError(), {}), (bug, {}), (UserError(), dict(debug=True))):
        with pytest.raises(type(error)):
            _run(error, **options)
