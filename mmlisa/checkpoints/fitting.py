"""Judgement of a file against a model, part by part, in both directions; and the loading of what fits."""

import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from mmengine.logging import print_log
from torch import Tensor, nn

from .reading import CheckpointError, note_averages, read_checkpoint

_SHOWN = 3  # names of entries in a message
# A part is a child of the model. Of a head that consists of heads, such as roi_head, each is a part, also each of a list.
_PART = re.compile(r"\w*_head(?:\.(?:\w*_head|\d+))+(?=\.)|[^.]+")

_NORMS_OF_MAPS = ("norm[0-9]", "stages.[0-9].norm")


@dataclass
class Part:
    """A part of a model, such as ``neck`` or ``roi_head.mask_head``, beside the same part of a file.

    Integers, such as the counters of batch norms, are not counted.

    Attributes:
        size: number of values in the model.
        found: number of those that the file has under the same name and in the same shape.
        missing: entries of the model that the file lacks.
        surplus: entries of the file that have no place in the model, each with its number of values.
        reshaped: entries that have another shape in the file, each with both shapes.
    """

    size: int = 0
    found: int = 0
    missing: list[str] = field(default_factory=list)
    surplus: dict[str, int] = field(default_factory=dict)
    reshaped: dict[str, str] = field(default_factory=dict)

    def differences(self) -> str:
        """Return what differs, with the first names; an empty text if nothing does."""
        texts = list(self.reshaped.values())[:_SHOWN]
        if self.missing:
            texts.append(f"the file lacks {_first(self.missing)}")
        if self.surplus:
            names = _first([*self.surplus])
            values = _count(sum(self.surplus.values()))
            texts.append(f"{values} values of the file have no place in the model, of {names}")
        return "; ".join(texts)


def compare(model: nn.Module, state: Mapping[str, Tensor]) -> dict[str, Part]:
    """Compare the weights of a file, as :func:`adapt_state_dict` returns them, with those of a model, part by part."""
    parts: dict[str, Part] = {}
    entries = model.state_dict()
    for name, tensor in entries.items():
        if not _counts(tensor):
            continue
        part = parts.setdefault(_PART.match(name)[0], Part())
        part.size += tensor.numel()
        saved = state.get(name)
        if not isinstance(saved, Tensor):
            part.missing.append(name)
        elif not _has_shape_of(saved, tensor):
            shapes = f"{list(saved.shape)} in the checkpoint and {list(tensor.shape)} in the model"
            part.reshaped[name] = f"{name} is {shapes}"
        else:
            part.found += tensor.numel()
    for name, tensor in state.items():
        if name not in entries and _counts(tensor):
            part = parts.setdefault(_PART.match(name)[0], Part())
            part.surplus[name] = tensor.numel()
    return parts


def judge(
    model: nn.Module, checkpoint: Mapping[str, Any], filename: str, may_differ: Sequence[str] = ()
) -> dict[str, Tensor]:
    """Return the weights of a checkpoint for a model, or refuse the file; the log says what was found of each part.

    Every value of the model must be in the file, and every value of the file must have a place in the model. The options of the
    backbone that the file states in ``meta`` must be the model's.

    Args:
        checkpoint: content of the file; see :func:`state_dict_of`.
        filename: for messages.
        may_differ: names of what is not compared: parts, entries or options, such as ``neck``, ``backbone.norm*`` or
            ``backbone.attention``. The log reports them.

    Raises:
        CheckpointError: the file is of another model, or an entry is not a weight.
    """
    state = adapt_state_dict(model, state_dict_of(checkpoint, filename))
    parts = compare(model, state)
    problems = {}
    for name, part in parts.items():
        if text := _without(part, may_differ).differences():
            problems[name] = f"{name}: {_count(part.found)} of {_count(part.size)} values match; {text}"
    if problems:
        reason = _explain(model, checkpoint, state, problems)
        raise CheckpointError(f"checkpoint '{filename}' is of another model. {reason}")
    note = _compare_options(model, checkpoint, filename, may_differ)
    _check_values(model.state_dict(), state, filename)
    print_log(f"{filename}: {_summary(parts)}{note}", logger="current")
    return state


def fresh_in_a_start(model: nn.Module, checkpoint: Mapping[str, Any]) -> list[str]:
    """Return what a training may start without, for ``may_differ`` of :func:`judge`.

    These are all parts but the backbone; the norms of its maps, of which a classifier has at most the last; options that follow
    the resolution; and the entries that ``mmlisa convert`` lists as fresh in the file.
    """
    backbone = getattr(model, "backbone", model)
    of_backbone = [*_NORMS_OF_MAPS, *getattr(backbone, "at_resolution", ())]
    names = [*model.state_dict(), *below_prefix(state_dict_of(checkpoint), "")]
    parts = {_PART.match(name)[0] for name in names}
    fresh = _meta(checkpoint).get("fresh")
    stated = [str(name) for name in fresh] if isinstance(fresh, list) else []
    if "backbone" not in parts:  # the model is a backbone, or has none
        return [*(name.removeprefix("backbone.") for name in stated), *of_backbone]
    return [*(parts - {"backbone"}), *stated, *(f"backbone.{name}" for name in of_backbone)]


def load_checkpoint(
    model: nn.Module, checkpoint: Mapping[str, Any], filename: str, may_differ: Sequence[str] = ()
) -> None:
    """Load the weights of a checkpoint that :func:`judge` takes; entries of another shape keep their initial values."""
    state = judge(model, checkpoint, filename, may_differ)
    entries = model.state_dict()
    fitting = {name: each for name, each in state.items() if name in entries and _has_shape_of(each, entries[name])}
    model.load_state_dict(fitting, strict=False)


def load_weights(model: nn.Module, source: str | Path, may_differ: Sequence[str] = ()) -> dict[str, Any]:
    """Load the weights of ``source`` and return the whole checkpoint; see :func:`read_checkpoint`, :func:`judge`."""
    checkpoint = read_checkpoint(source)
    load_checkpoint(model, checkpoint, str(source), may_differ)
    return checkpoint


def saved_metainfo(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``metainfo`` of the training data that a checkpoint holds; empty if it holds none.

    Data sets that differ leave a list, of which the first counts. Before mmdet 3.0, the keys had capital letters.
    """
    metainfo = _meta(checkpoint).get("dataset_meta")
    metainfo = next(iter(metainfo), None) if isinstance(metainfo, list) else metainfo
    return {str(key).lower(): value for key, value in metainfo.items()} if isinstance(metainfo, Mapping) else {}


def state_dict_of(checkpoint: Mapping[str, Any], filename: str = "") -> Mapping[str, Tensor]:
    """Return the weights of a checkpoint: its entry ``state_dict`` or ``model``, or else all of it.

    With ``filename``, the log says if averaged weights beside them are not taken. An entry that is not a tensor is a
    CheckpointError.
    """
    key = next((key for key in ("state_dict", "model") if isinstance(checkpoint.get(key), Mapping)), None)
    state = checkpoint[key] if key else checkpoint
    if key and filename:
        note_averages(checkpoint, key, filename)
    for name, value in state.items():
        if not isinstance(value, Tensor) and not str(name).endswith("_extra_state"):
            raise CheckpointError(f"checkpoint {filename}: {name!r} is a {type(value).__name__}, not a tensor")
    return state


def adapt_state_dict(model: nn.Module, state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a copy without the names of wrappers, with the stem's input channels, and with tables of another grid resampled.

    Other libraries' modules rename and resample in hooks of their own, which run on the copy, too. Entries that fit already stay
    as they are, so a second call costs nothing.
    """
    weights, adapted = model.state_dict(), below_prefix(state_dict, "")
    adapted.update({name: adapt_channels(tensor, weights.get(name)) for name, tensor in adapted.items()})
    for name, module in model.named_modules():
        prefix, metadata = f"{name}." if name else "", adapted._metadata.get(name, {})
        if hasattr(module, "adapt_state_dict"):
            module.adapt_state_dict(adapted, prefix, metadata)
        else:
            for hook in module._load_state_dict_pre_hooks.values():
                hook(adapted, prefix, metadata, True, [], [], [])
    return adapted


def adapt_channels(loaded: Tensor, weight: Tensor | None) -> Tensor:
    """Return the weight of a convolution of RGB for the input channels of ``weight``, as timm does; any other weight as it is."""
    shape, wanted = getattr(loaded, "shape", ()), getattr(weight, "shape", ())  # an extra state may be any object
    if len(wanted) != 4 or shape == wanted or shape != (wanted[0], 3, *wanted[2:]):
        return loaded
    from timm.models import adapt_input_conv

    return adapt_input_conv(wanted[1], loaded)


def below_prefix(state_dict: Mapping[str, Tensor], prefix: str) -> "OrderedDict[str, Tensor]":
    """Return the entries whose names start with ``prefix``, without it, and the metadata of their modules, such as grids.

    The names of wrappers, ``module.`` of parallel training and ``_orig_mod.`` of torch.compile, do not count.
    """
    prefix = prefix.removeprefix("module.")

    def select(entries: Mapping[str, Any]) -> "OrderedDict[str, Any]":
        plain = {name.removeprefix("module.").replace("_orig_mod.", ""): entry for name, entry in entries.items()}
        return OrderedDict((name.removeprefix(prefix), each) for name, each in plain.items() if name.startswith(prefix))

    below, metadata = select(state_dict), getattr(state_dict, "_metadata", None) or {}
    of_modules = select({f"{name}.": dict(entry) for name, entry in metadata.items()})
    below._metadata = OrderedDict((name.removesuffix("."), entry) for name, entry in of_modules.items())
    return below


def _meta(checkpoint: Mapping[str, Any]) -> Mapping[str, Any]:
    meta = checkpoint.get("meta")
    return meta if isinstance(meta, Mapping) else {}


def _counts(value: Any) -> bool:
    """Return whether an entry is a tensor of weights; counters and extra states of modules are not."""
    return isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())


def _has_shape_of(value: Any, entry: Any) -> bool:
    """Return whether a value of a file fits an entry of a model; an extra state, which may be any object, has no shape."""
    return getattr(value, "shape", None) == getattr(entry, "shape", None)


def _count(values: int) -> str:
    return f"{values / 1e6:.1f} M" if values >= 100_000 else str(values)


def _first(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")


def _is_listed(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch(name, pattern) or fnmatch(name, f"{pattern}.*") for pattern in patterns)


def _without(part: Part, may_differ: Sequence[str]) -> Part:
    """Return the differences of a part that are not listed."""
    reshaped = {name: text for name, text in part.reshaped.items() if not _is_listed(name, may_differ)}
    missing = [name for name in part.missing if not _is_listed(name, may_differ)]
    surplus = {name: number for name, number in part.surplus.items() if not _is_listed(name, may_differ)}
    return Part(part.size, part.found, missing, surplus, reshaped)


def _summary(parts: Mapping[str, Part]) -> str:
    size, found = sum(part.size for part in parts.values()), sum(part.found for part in parts.values())
    if found == size and not any(part.surplus for part in parts.values()):
        return f"all {_count(size)} values match"
    texts = [f"{name} {_count(part.found)} of {_count(part.size)} values" for name, part in parts.items() if part.size]
    texts += [f"{name} of the file is not used" for name, part in parts.items() if not part.size]
    return ", ".join(texts)


def _explain(
    model: nn.Module, checkpoint: Mapping[str, Any], state: Mapping[str, Tensor], problems: Mapping[str, str]
) -> str:
    """Return the differences of a refused file, which ``problems`` has part by part, and what to do."""
    text = ". ".join(list(problems.values())[:_SHOWN])
    if further := list(problems)[_SHOWN:]:
        text += f". Further parts that differ: {', '.join(further)}"
    names = model.state_dict().keys()
    if any(f"backbone.{name}" in state for name in names):
        return f"{text}. Add prefix='backbone.'"
    if any(name.removeprefix("backbone.") in state for name in names if name.startswith("backbone.")):
        return f"{text}. The file holds a backbone alone; start a training from it by --pretrained"
    if classes := saved_metainfo(checkpoint).get("classes"):
        text += f". It was trained for {list_classes(classes)}"
    text += ". Use the config that it was trained with"
    return text if further else f"{text}, or name what may differ: --may-differ {' '.join(problems)}"


def list_classes(classes: Sequence[str]) -> str:
    """Return the number of classes and the first names, as text."""
    return f"{len(classes)} classes ({', '.join(classes[:8])}{', …' if len(classes) > 8 else ''})"


def _compare_options(model: nn.Module, checkpoint: Mapping[str, Any], filename: str, may_differ: Sequence[str]) -> str:
    """Compare the options of the backbone with those of the file; return a note on what was not compared."""
    backbone = getattr(model, "backbone", model)
    if not hasattr(backbone, "settings"):  # of another library
        return ""
    saved = _meta(checkpoint).get("backbone")
    if not isinstance(saved, Mapping) or not isinstance(saved.get("arch"), Mapping):
        return "; the file does not state the options of its backbone, which were not compared"
    prefix = "" if backbone is model else "backbone."
    ours, saved = ({"type": each["type"], **each["arch"]} for each in (backbone.settings(), saved))
    unknown = []
    for key, value in ours.items():
        if key not in saved:
            unknown.append(key)
        elif _plain(saved[key]) != _plain(value) and not _is_listed(prefix + key, may_differ):
            difference = f"was trained with {key}={saved[key]!r} of the backbone, and the model has {key}={value!r}"
            raise CheckpointError(f"checkpoint '{filename}' {difference}; set it, or pass --may-differ {prefix}{key}")
    return f"; the file does not state {', '.join(unknown)} of its backbone, not compared" if unknown else ""


def _plain(value: Any) -> Any:
    """Return an option with lists for tuples, which formats and configs exchange."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


def _check_values(weights: Mapping[str, Any], state: Mapping[str, Any], filename: str) -> None:
    """Refuse values that are not finite, and integers in the place of weights or the reverse."""
    for name, weight in weights.items():
        tensor = state.get(name)
        if not isinstance(tensor, Tensor) or not _has_shape_of(tensor, weight):
            continue
        if tensor.is_meta:  # has no values
            continue
        if tensor.is_floating_point() != weight.is_floating_point() or not tensor.isfinite().all():
            raise CheckpointError(f"checkpoint '{filename}': {name} ({tensor.dtype}) is not finite or not a weight")
