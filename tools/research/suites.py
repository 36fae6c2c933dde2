"""Comparisons by suite, read from suites.yml. The candidates of a comparison differ in one thing.

A comparison is a shipped demo config plus overrides by dotted key: those of all candidates, and the backbone of each.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

Delta = dict[str, Any]  # new values by dotted key; numbers index lists
ROOT = "work_dirs/compare"  # results of the runs
_DATA = yaml.safe_load(Path(__file__).with_suffix(".yml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Candidate:
    """A backbone's config, the channels of its maps, and overrides of the task's config; ``load_from`` may contain ``{seed}``."""

    backbone: Delta
    channels: list[int]
    training: Delta = field(default_factory=dict)


@dataclass(frozen=True)
class Comparison:
    """Candidates under one head, on the same data, with the same budget and the same seeds.

    Attributes:
        title: heading of the table.
        task: a name of :data:`TASKS`.
        candidates: candidates by name.
        baseline: name of the candidate with which the table compares the others.
        iterations: length of each training.
        size: height and width of the images.
        seeds: seeds of the runs of each candidate.
        shared: overrides of the task's config for all candidates.
    """

    title: str
    task: str
    candidates: Mapping[str, Candidate]
    baseline: str
    iterations: int
    size: int
    seeds: Sequence[int] = (0, 1, 2)
    shared: Delta = field(default_factory=dict)


@dataclass(frozen=True)
class Task:
    """A config that ships with mmlisa, with the keys that a comparison changes.

    Attributes:
        config: name of the config.
        metric: name of the metric that is the accuracy.
        whole: value of the metric for a perfect model.
        unit: name of the metric in tables, which show percent.
        channels_key: key of the backbone's channels; their value is a number if only the last map is used.
        delta: overrides of the config.
        size_keys: keys of the size of an image, as (width, height).
    """

    config: str
    metric: str
    whole: float
    unit: str
    channels_key: str
    delta: Delta
    size_keys: Sequence[str] = ()


# Demo data of the comparisons: scenes for detection and segmentation, and single objects for classification.
SCENES, OBJECTS = "data/compare_scenes", "data/compare_objects"
TASKS = {name: Task(**entry) for name, entry in _DATA["tasks"].items()}


def _comparison(host: str = "", operators: Sequence[str] = (), **entry: Any) -> Comparison:
    """Return a comparison of the file; its candidates are listed, or they are operators in a host."""
    if host:
        shared = _DATA["hosts"][host]
        entry["candidates"] = {
            name: {**shared, "backbone": {**shared["backbone"], "image_size": entry["size"], "attention": operator}}
            for name, operator in _DATA["operators"].items()
            if not operators or name in operators
        }
    return Comparison(**{**entry, "candidates": {name: Candidate(**one) for name, one in entry["candidates"].items()}})


SUITES: dict[str, dict[str, Comparison]] = {
    suite: {name: _comparison(**entry) for name, entry in comparisons.items()}
    for suite, comparisons in _DATA["suites"].items()
}
