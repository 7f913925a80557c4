"""The latest results of the pipelines: `zambezi pipeline run` leaves them in a directory, as small JSON files.

A file has `pipeline`, `time` (seconds since 1970) and `kind`:

    verdict   healthy, verdict, judged, reasons, more_reasons
    plots     plots: title, notes, and the data from which the page draws it
    table     title, columns, rows, notes, more, order

Programs that the console does not know write these files. So it reads only regular files of the directory itself, never
through a link, and bounds their number and size. A file that is no result is listed with what is wrong.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from zambezi.console.answers import encode, send
from zambezi.wire.text import printable

if TYPE_CHECKING:
    from aiohttp import web

LARGEST: Final = 1 << 20  # bytes of a file
MOST_BYTES: Final = 8 << 20  # of all files
MOST_FILES: Final = 300
MOST_ENTRIES: Final = 10_000  # of the directory
PROBLEMS: Final = 10  # files whose problems are told
FRESH: Final = 1.0  # seconds between two looks at the directory
_KINDS: Final = ("verdict", "plots", "table")
_LATEST: Final = 1e11  # seconds since 1970: browsers cannot show much later ones
_DIGITS: Final = 20  # of a number without a point: a browser cannot show more


class BadResult(ValueError):
    """A file that is no result."""


@dataclass(frozen=True, slots=True)
class Result:
    """The content of a file."""

    name: str
    pipeline: str
    time: float
    kind: str
    content: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Mark:
    """A version of a file."""

    name: str
    changed: int  # nanoseconds
    size: int
    inode: int


class Results:
    """The results in a directory, read again when its files change."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._known: dict[_Mark, Result | BadResult] = {}
        self._problems: list[str] = []
        self._lock = asyncio.Lock()
        self._stale_at = 0.0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Send all verdicts, and the results of one pipeline unless the page has them: ?pipeline=...&stamp=..."""
        await self.look()
        told = self.describe(request.query.get("pipeline", ""), request.query.get("stamp", ""))
        return await send(request, encode(told))

    async def look(self) -> None:
        """Read the files that have changed. A slow disk keeps only this request waiting."""
        async with self._lock:
            now = asyncio.get_running_loop().time()
            if self._directory and now >= self._stale_at:
                await asyncio.to_thread(self.read)
                self._stale_at = now + FRESH

    def read(self) -> None:
        """Read the files that have changed, the newest first."""
        try:
            marks = sorted(_marks(self._directory), key=attrgetter("changed", "name"), reverse=True)
        except OSError as error:
            self._known, self._problems = {}, [f"the directory of results cannot be read: {error.strerror}"]
            return
        kept, room = [], MOST_BYTES
        for mark in marks[:MOST_FILES]:
            room -= min(mark.size, LARGEST)
            if room < 0:
                break
            kept.append(mark)
        self._known = {mark: self._known.get(mark) or _result(self._directory, mark) for mark in kept}
        bad = [f"{printable(mark.name)}: {one}" for mark, one in self._known.items() if isinstance(one, BadResult)]
        self._problems = bad[:PROBLEMS]
        if len(bad) > PROBLEMS:
            self._problems.append(f"and {len(bad) - PROBLEMS:,} more files that are no results")
        if len(marks) > len(kept):
            limits = f"{MOST_FILES} files and {MOST_BYTES >> 20} MiB"
            self._problems.append(f"{len(marks) - len(kept):,} older files are not read: the limits are {limits}")

    def describe(self, pipeline: str = "", stamp: str = "") -> dict[str, Any]:
        """Return the verdicts of all pipelines, and all results of one of them.

        Without a name that exists, that is the first pipeline. If `stamp` is the one of its last description, its
        results are left out.
        """
        found: dict[str, list[Result]] = {}
        for one in self._known.values():
            if isinstance(one, Result):
                found.setdefault(one.pipeline, []).append(one)
        listed = sorted(map(_summary, found, found.values()), key=_urgency)
        told: dict[str, Any] = {"on": bool(self._directory), "pipelines": listed, "problems": self._problems}
        if not listed:
            return told
        chosen = pipeline if pipeline in found else listed[0]["pipeline"]
        stamp_now = self._stamp(chosen)
        told |= {"chosen": chosen, "stamp": stamp_now}
        return told if stamp == stamp_now else {**told, "results": _details(found[chosen])}

    def _stamp(self, pipeline: str) -> str:
        marks = [mark for mark, one in self._known.items() if isinstance(one, Result) and one.pipeline == pipeline]
        return f"{pipeline}:{hash(frozenset(marks)):x}"


def _marks(directory: str) -> Iterator[_Mark]:
    with os.scandir(directory) as entries:
        for entry in islice(entries, MOST_ENTRIES):
            if not entry.name.endswith(".json") or entry.name.startswith("."):
                continue
            with contextlib.suppress(FileNotFoundError):  # it was replaced or removed
                status = entry.stat(follow_symlinks=False)
                yield _Mark(entry.name, status.st_mtime_ns, status.st_size, status.st_ino)


def _result(directory: str, mark: _Mark) -> Result | BadResult:
    try:
        return _parsed(mark.name.removesuffix(".json"), _content(Path(directory, mark.name)))
    except BadResult as error:
        return error
    except OSError as error:
        return BadResult(f"cannot be read: {error.strerror}")
    except RecursionError:
        return BadResult("is nested too deeply")
    except ValueError as error:
        return BadResult(f"is not JSON: {error}")


def _content(path: Path) -> bytes:
    """Return a regular file. Opening a link fails, and opening a pipe does not wait."""
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(file, "rb") as opened:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise BadResult("is not a regular file")
        content = opened.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise BadResult(f"is larger than {LARGEST >> 20} MiB")
    return content


def _parsed(name: str, content: bytes) -> Result:
    value = json.loads(content, parse_float=_real, parse_int=_whole, parse_constant=_constant)
    if not isinstance(value, dict):
        raise BadResult("is not a JSON object")
    pipeline, time, kind = value.get("pipeline"), value.get("time"), value.get("kind")
    if not isinstance(pipeline, str) or not pipeline or len(pipeline) > 100:
        raise BadResult("has no name of a pipeline")
    if not isinstance(time, int | float) or not 0 <= time < _LATEST:
        raise BadResult("has no time")
    if kind not in _KINDS:
        raise BadResult(f"kind must be one of {', '.join(_KINDS)}")
    {"verdict": _check_verdict, "plots": _check_plots, "table": _check_table}[kind](value)
    return Result(name, pipeline, float(time), kind, value)


def _real(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise BadResult("has a number that is too large")
    return value


def _whole(text: str) -> int:
    if len(text) > _DIGITS:
        raise BadResult("has a number that is too large")
    return int(text)


def _constant(text: str) -> None:
    raise BadResult(f"has {text}, which is no number")


def _check_verdict(value: Mapping[str, Any]) -> None:
    if not (value.get("healthy") is None or isinstance(value["healthy"], bool)):
        raise BadResult("healthy must be true, false or null")
    _check_texts(value, "verdict", "judged")
    for reason in _objects(value, "reasons"):
        _check_texts(reason, "about", "kind", "reason", "since")


def _check_plots(value: Mapping[str, Any]) -> None:
    for plot in _objects(value, "plots"):
        _check_texts(plot, "title")
        _check_notes(plot)
        if not isinstance(plot.get("data"), dict):
            raise BadResult("a plot has no data")


def _check_table(value: Mapping[str, Any]) -> None:
    _check_texts(value, "title")
    if not isinstance(value.get("order", 0), int):
        raise BadResult("order must be a whole number")
    _check_notes(value)
    columns, rows = value.get("columns"), value.get("rows")
    if not isinstance(columns, list) or not all(isinstance(one, str) for one in columns):
        raise BadResult("columns must be a list of names")
    if not isinstance(rows, list) or not all(isinstance(row, list) and len(row) == len(columns) for row in rows):
        raise BadResult("rows must be a list of lists, each with a cell for each column")


def _check_notes(value: Mapping[str, Any]) -> None:
    notes = value.get("notes")
    if not isinstance(notes, list) or not all(isinstance(one, str) for one in notes):
        raise BadResult("notes must be a list of texts")


def _check_texts(value: Mapping[str, Any], *names: str) -> None:
    for name in names:
        if not isinstance(value.get(name), str):
            raise BadResult(f"{name} must be a text")


def _objects(value: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    found = value.get(name)
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise BadResult(f"{name} must be a list of objects")
    return found


def _summary(pipeline: str, results: list[Result]) -> dict[str, Any]:
    """Return the newest verdict of a pipeline in short: whether it is healthy, when, and why not."""
    verdict = max((one for one in results if one.kind == "verdict"), key=attrgetter("time"), default=None)
    told: dict[str, Any] = {"pipeline": pipeline, "time": max(one.time for one in results)}
    if verdict is None:
        return {**told, "healthy": None, "why": ""}
    reasons = verdict.content["reasons"]
    more = verdict.content.get("more_reasons")
    count = len(reasons) + (more if isinstance(more, int) else 0)
    why = str(reasons[0]["reason"]) if reasons else str(verdict.content["judged"])
    return {**told, "time": verdict.time, "healthy": verdict.content.get("healthy"), "why": why[:500], "reasons": count}


def _urgency(summary: Mapping[str, Any]) -> tuple[bool, float, str]:
    """Return the place of a pipeline in the list: those that are not healthy first, then the newest."""
    return summary["healthy"] is not False, -summary["time"], summary["pipeline"]


def _details(results: list[Result]) -> list[dict[str, Any]]:
    """Return the results of a pipeline: the verdict, the plots, and the tables in the order of the pipeline."""
    found = sorted(results, key=lambda one: (_KINDS.index(one.kind), _order(one), one.name))
    return [{**one.content, "name": one.name, "time": one.time} for one in found]


def _order(result: Result) -> int:
    return int(result.content.get("order", 0)) if result.kind == "table" else 0
