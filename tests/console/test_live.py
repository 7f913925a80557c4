"""The state of a page as differences."""

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from zambezi.console.live import Differences, difference

LEAVES = st.none() | st.integers(0, 3) | st.lists(st.integers(0, 2), max_size=2)
VALUES = st.dictionaries(
    st.sampled_from("abc"),
    st.recursive(LEAVES, lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3), max_leaves=8),
)


def merged(value: Any, patch: dict[str, Any]) -> Any:
    """Apply a JSON Merge Patch (RFC 7396)."""
    value = value if isinstance(value, dict) else {}
    for key, one in patch.items():
        if one is None:
            value.pop(key, None)
        else:
            value[key] = merged(value.get(key), one) if isinstance(one, dict) else one
    return value


def without_nulls(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {key: without_nulls(one) for key, one in value.items() if one is not None}


@given(st.lists(VALUES, min_size=1, max_size=4))
def test_the_page_has_the_value_after_each_event(values: list[dict[str, Any]]) -> None:
    differences = Differences()
    page: Any = {}
    for value in values:
        event = differences.next(copy.deepcopy(value))
        page = event["whole"] if "whole" in event else merged(page, event["patch"])
        assert page == without_nulls(value)


def test_a_value_that_did_not_change_needs_no_bytes() -> None:
    value = {"rows": {str(number): {"last": number} for number in range(50)}, "order": ["1"]}
    assert difference(value, copy.deepcopy(value)) == {}
