"""Alarms: a message when a pipeline finds an incident, and one when the incident is over.

Each incident has its own publisher. The broker counts the messages of a publisher: 1 is an incident that lasts, 2 one
that is over, 3 one that has come back. So several runs that find the same incident, or a run that was killed, publish
nothing twice. The broker forgets a publisher after some days (`keep_publishers`). If the incident still lasts then, it
is published again.

A file beside the results has the incidents that last. The next run compares them with its own reasons.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from zambezi.spark.lake.place import Place
from zambezi.spark.options import SINK, Options
from zambezi.spark.pipelines.verdict import Reason, Verdict, reason_as_json
from zambezi.zeps.sync import Client

_FIELDS: Final = ("about", "kind", "since")


def publish_alarms(
    verdict: Verdict,
    options: Mapping[str, str],
    now: datetime | None = None,
    *,
    table: str = "",
    memory: Place | None = None,
) -> int:
    """Publish a message for each new reason, and for each incident that is over; return how many were published.

    `options` are those of the sink: `endpoint`, `stream` and keys. The key of a message is what the reason is about;
    its body is JSON, with `healthy`. `table` is the place of the table: several tables can have the same problem.
    `memory` is the place of the file with incidents that last; without it, no end is published.
    """
    known = Options(dict(options), SINK)
    reported = (now or datetime.now(UTC)).isoformat(timespec="seconds")
    path = f".{verdict.pipeline}-alarms.json"
    lasting = _read_lasting(memory, path, known["stream"])
    found = {reason.identity(verdict.pipeline, table): reason for reason in verdict.reasons}
    over = {} if verdict.more else {key: value for key, value in lasting.items() if key not in found}
    if memory is not None:  # before the first message: a run that is killed must not forget an incident
        _write_lasting(memory, path, known["stream"], lasting | {key: _kept(one) for key, one in found.items()})
    count = 0
    for identity, reason in found.items():
        body = {"pipeline": verdict.pipeline, "healthy": False, **reason_as_json(reason), "reported": reported}
        count += _publish(known, identity, reason.about, body, lasts=True)
    for identity, before in over.items():
        told = {**before, "reason": f"{before['about']} is healthy again ({before['kind']})", "reported": reported}
        body = {"pipeline": verdict.pipeline, "healthy": True, **told}
        count += _publish(known, identity, before["about"], body, lasts=False)
    if memory is not None and over:
        rest = {key: value for key, value in lasting.items() if key not in over}
        _write_lasting(memory, path, known["stream"], rest | {key: _kept(one) for key, one in found.items()})
    return count


def _publish(known: Options, identity: str, key: str, body: Mapping[str, Any], *, lasts: bool) -> bool:
    """Publish the beginning or the end of an incident, unless the stream has it; return whether it was published."""
    with Client(known["endpoint"], security=known.security()) as client:
        stream = client.stream(known["stream"], publisher=identity)
        before = stream.resumed(known["timeout"])
        is_told = before % 2 == 1 if lasts else before > 0 and before % 2 == 0
        if is_told:
            return False
        stream.publish(key, json.dumps(body, default=str).encode())
        stream.flush(known["timeout"])
        return True


def _kept(reason: Reason) -> dict[str, str]:
    return {name: str(getattr(reason, name)) for name in _FIELDS}


def _read_lasting(memory: Place | None, path: str, stream: str) -> dict[str, dict[str, str]]:
    """Return the incidents that lasted in the last run. A file that is damaged, or of another stream, has none."""
    content = None if memory is None else memory.read(path)
    try:
        told = json.loads(content or b"{}")
        if told.get("stream") != stream:
            return {}
        return {str(key): {name: str(one[name]) for name in _FIELDS} for key, one in told["lasting"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _write_lasting(memory: Place, path: str, stream: str, lasting: Mapping[str, Mapping[str, str]]) -> None:
    memory.put(path, json.dumps({"stream": stream, "lasting": lasting}).encode())
