"""Annotation files with nonsense anywhere: named and left out or refused, and what is kept loads."""

import copy

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from helpers.coco import coco, dataset_cfg
from mmlisa.datasets.annotations import find_problems, without

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-2, 50)
    | st.sampled_from(
        [2**40, -(2**40), 0.5, 1e9, -1e-9, float("nan"), float("inf"), "", "cat", "a.png", "../a", "/a", "3"]
    )
)
NONSENSE = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=8)
        | st.dictionaries(st.sampled_from(["size", "counts", "id", "bbox", "file_name"]), inner, max_size=3)
        | st.builds(lambda counts: {"size": [30, 40], "counts": counts}, st.lists(inner, max_size=4))
    ),
    max_leaves=8,
)


def places(value, path=()):
    """The ways to everything inside of parsed JSON."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


@st.composite
def damaged(draw):
    content = coco(
        dict(segmentation=dict(size=[30, 40], counts=[10, 5, 1185]), iscrowd=1),
        dict(segmentation=[[5, 5, 9, 5, 9, 9], [12, 5, 20, 5, 20, 9]], bbox=[5, 5, 15, 4]),
    )
    content = copy.deepcopy(content)
    for _ in range(draw(st.integers(1, 3))):
        *way, last = draw(st.sampled_from(list(places(content))))
        place = content
        for key in way:
            place = place[key]
        if draw(st.booleans()) and isinstance(place, dict):
            del place[last]
        else:
            place[last] = draw(NONSENSE)
    return content


@pytest.mark.fuzz
@given(content=damaged())
@example(content=coco(dict(segmentation=dict(size=None, counts=[1200]))))
@example(content=coco(dict(id=[2])))
@example(content=coco(id=[1]))
def test_what_is_left_is_good(content):
    try:
        problems = find_problems(content)
    except ValueError:
        return
    assert all(str(problem) for problem in problems)
    assert find_problems(without(content, problems)) == []


@pytest.mark.slow
@pytest.mark.fuzz
@given(content=damaged())
@example(content=coco(dict(segmentation=[[5, 5, 1e9, 5, 5, 9]])))
def test_the_dataset_loads_or_says_why(folder, content):
    pytest.importorskip("mmdet")
    from mmdet.datasets.transforms import LoadAnnotations

    from mmlisa.registry import DATASETS

    try:
        dataset = DATASETS.build(dataset_cfg(folder, content))
    except ValueError as error:
        if "a.json" not in str(error):
            raise
        return
    load = LoadAnnotations(with_bbox=True, with_mask=True)
    for info in map(dataset.get_data_info, range(len(dataset))):
        shape = (info["height"], info["width"])
        if shape != (30, 40):  # another image than the one there is
            continue
        loaded = load({**info, "ori_shape": shape})
        assert len(loaded["gt_masks"]) == len(loaded["gt_bboxes_labels"])
