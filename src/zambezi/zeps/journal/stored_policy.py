"""The settings of one stream that a client has given: `policy.json` in the directory of the stream.

The file has only the values that differ from the default policy of the broker, so that a change of the default reaches
the others. A broker whose configuration has a table for the stream uses that instead.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from zambezi.zeps.errors import JournalError
from zambezi.zeps.journal.files import read_small
from zambezi.zeps.journal.identity import replace_file
from zambezi.zeps.journal.policy import AGES, COUNTS, SIZES, Policy
from zambezi.zeps.journal.positions import SETTINGS, Position, Positions

FILE: Final = "policy.json"
# Whole numbers, and their bounds.
_WHOLE: Final = {"segment": SIZES, "keep_bytes": SIZES, "publishers": COUNTS, "readers": COUNTS}
_TIMES: Final = {"keep_seconds": AGES, "keep_publishers": AGES, "keep_tombstones": AGES}
_SETTINGS: Final = frozenset({"sync", "compact", *_WHOLE, *_TIMES})


def changed(policy: Policy, changes: Mapping[str, object]) -> Policy:
    """Return a policy with other values; raise `JournalError` for a name or a value that is not allowed."""
    _check_names(changes)
    for name, value in changes.items():
        if problem := _problem(name, value):
            raise JournalError(f"{name} is {value!r:.40}: it must be {problem}")
    return replace(policy, **changes)  # type: ignore[arg-type]


def merged(settings: Mapping[str, object], changes: Mapping[str, object]) -> dict[str, object]:
    """Return settings with some changes. A change to None removes a setting."""
    _check_names(changes)
    return {name: value for name, value in {**settings, **changes}.items() if value is not None}


def _check_names(changes: Mapping[str, object]) -> None:
    unknown = sorted(set(changes) - _SETTINGS)
    if unknown:
        raise JournalError(f"a stream has no setting {unknown[0]!a}: it has {', '.join(sorted(_SETTINGS))}")


def _problem(name: str, value: object) -> str:
    """Return what a value must be, if it is something else."""
    if name == "sync":
        return "" if isinstance(value, str) else "text"
    if name == "compact":
        return "" if isinstance(value, bool) else "true or false"
    least, most = (_WHOLE | _TIMES)[name]
    wanted = int if name in _WHOLE else int | float
    if isinstance(value, wanted) and not isinstance(value, bool) and least <= value <= most:
        return ""
    return f"a {'whole ' if name in _WHOLE else ''}number from {least} to {most}"


def read_changes(directory: Path) -> dict[str, object]:
    """Return the settings that a client has given a stream; none without the file."""
    try:
        content = json.loads(read_small(directory / FILE))
        changed(Policy(), content)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError, JournalError) as error:
        raise JournalError(f"{directory / FILE} cannot be used ({error}): remove or correct it") from None
    return dict(content)


def pack_settings(settings: Mapping[str, object], time: int) -> Position:
    """Return the settings of a stream in an object store as a record, which moves with the stream."""
    return Position(SETTINGS, "settings", 0, time=time, payload=json.dumps(dict(settings)).encode())


def find_settings(positions: Positions) -> dict[str, object] | None:
    """Return the settings in the records of a stream; None if there are none, or none that this release knows."""
    found = positions.get(SETTINGS, "settings")
    try:
        content = json.loads(found.payload) if found is not None else None
        changed(Policy(), content or {})
    except (ValueError, TypeError, AttributeError, RecursionError, JournalError):
        return None
    return None if content is None else dict(content)


def write_changes(directory: Path, changes: Mapping[str, object]) -> None:
    """Write the settings of a stream, and sync them to the disk."""
    replace_file(directory / FILE, json.dumps(dict(changes), indent=2).encode() + b"\n")
