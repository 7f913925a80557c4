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
from zambezi.zeps.journal.policy import Policy

FILE: Final = "policy.json"
_SETTINGS: Final = frozenset(
    {"sync", "segment", "keep_bytes", "keep_seconds", "publishers", "keep_publishers", "readers"}
)


def changed(policy: Policy, changes: Mapping[str, object]) -> Policy:
    """Return a policy with other values; raise `JournalError` for a name or a value that is not allowed."""
    unknown = sorted(set(changes) - _SETTINGS)
    if unknown:
        raise JournalError(f"a stream has no setting {unknown[0]!a}: it has {', '.join(sorted(_SETTINGS))}")
    for name, value in changes.items():
        wanted = str if name == "sync" else int | float
        if value is None or isinstance(value, bool) or not isinstance(value, wanted):
            raise JournalError(f"{name} is {value!r:.40}: it must be {'text' if name == 'sync' else 'a number'}")
    return replace(policy, **changes)  # type: ignore[arg-type]


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


def write_changes(directory: Path, changes: Mapping[str, object]) -> None:
    """Write the settings of a stream, and sync them to the disk."""
    replace_file(directory / FILE, json.dumps(dict(changes), indent=2).encode() + b"\n")
