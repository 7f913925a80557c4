"""The state of a page, sent as differences.

The first event of a page has the whole value; each later one has a patch, which is a JSON Merge Patch (RFC 7396): the
keys that have changed, and null for the keys that are gone. Lists are sent whole, so rows are not in lists: they are
by their id, beside a list of ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the patch that turns one value into another.

    >>> difference({"a": 1, "b": {"c": 1, "d": 2}, "e": 3}, {"a": 1, "b": {"c": 1, "d": 4}})
    {'e': None, 'b': {'d': 4}}
    """
    patch: dict[str, Any] = {key: None for key in before if key not in after and before[key] is not None}
    for key, new in after.items():
        old = before.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            inner = difference(old, new)
            if inner:
                patch[key] = inner
        elif old != new:
            patch[key] = _without_nulls(new) if isinstance(new, Mapping) else new
    return patch


def _without_nulls(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a value without its nulls: in a patch, they mean that a key is gone."""
    kept = {key: one for key, one in value.items() if one is not None}
    return {key: _without_nulls(one) if isinstance(one, Mapping) else one for key, one in kept.items()}


class Differences:
    """The differences between the values that one page has got."""

    def __init__(self) -> None:
        self._sent: dict[str, Any] | None = None

    def next(self, value: dict[str, Any]) -> dict[str, Any]:
        """Return the next event: the whole value, or a patch of the last one."""
        before, self._sent = self._sent, value
        return {"whole": _without_nulls(value)} if before is None else {"patch": difference(before, value)}
