"""The latest results of the pipelines, which they write for the console as small JSON files in a directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

_LARGEST: Final = 1 << 20  # bytes of a file
_MOST: Final = 100  # files


def latest_results(directory: str) -> list[dict[str, Any]]:
    """Return the tables in the `*.json` files of a directory, the newest first. Skip files that cannot be read."""
    if not directory:
        return []
    found = []
    for path in sorted(Path(directory).glob("*.json"))[:_MOST]:
        try:
            status = path.stat()
            if status.st_size > _LARGEST:
                continue
            table = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(table, dict):
            found.append({"name": path.stem, "time": status.st_mtime, **table})
    return sorted(found, key=lambda one: -one["time"])
