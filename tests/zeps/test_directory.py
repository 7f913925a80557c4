"""zambezi.zeps.directory: the content of the reserved streams, parsed."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest

from zambezi.zeps.directory import (
    ClientInfo,
    StreamInfo,
    datetime_of,
    microseconds_of,
    read_clients,
    read_index,
    read_streams,
)
from zambezi.zeps.errors import BrokerError
from zambezi.zeps.journal.entry import IndexEntry


def test_unknown_fields_of_a_stream_are_ignored() -> None:
    row = {"stream": "s", "incarnation": "one", "first": 5, "last": 9, "octets": 77, "last_time": 1_000_000, "moon": 1}
    (info,) = read_streams([json.dumps(row).encode(), b""])
    assert (info.stream, info.first, info.last, info.messages, info.octets) == ("s", 5, 9, 5, 77)
    assert info.last_at == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)


def test_a_stream_without_messages_has_no_times() -> None:
    info = StreamInfo(stream="s")
    assert (info.messages, info.first_at, info.last_at) == (0, None, None)


def test_a_client_is_read() -> None:
    (info,) = read_clients([b'{"client": 7, "stream": "s", "patterns": ["a", "b"]}'])
    assert info == ClientInfo(client=7, stream="s", patterns=("a", "b"))


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b"7", b"{}", b"\xff", b"[" * 3000, b'{"stream": "s", "last": "7"}', b'{"stream": 7}']
)
def test_a_body_that_cannot_be_parsed_is_a_broker_error(body: bytes) -> None:
    with pytest.raises(BrokerError, match="StreamInfo"):
        read_streams([body])


def test_index_entries_come_many_in_a_body() -> None:
    entries = [IndexEntry(1 + number * 10, number * 100, number, 10, 100, 80, 0) for number in range(5)]
    bodies = [b"".join(entry.pack() for entry in entries[:3]), b"".join(entry.pack() for entry in entries[3:])]
    assert read_index(bodies) == entries


def test_a_torn_index_entry_is_a_broker_error() -> None:
    with pytest.raises(BrokerError, match="CRC is wrong"):
        read_index([IndexEntry(1, 0, 0, 10, 100, 80, 0).pack()[:-1]])


def test_times_come_back() -> None:
    when = datetime(2026, 3, 4, 5, 6, 7, 890_123, tzinfo=UTC)
    assert datetime_of(microseconds_of(when)) == when
    assert datetime_of(1 << 62).year == 9999
    assert microseconds_of(when.astimezone(timezone(timedelta(hours=5)))) == microseconds_of(when)
    assert microseconds_of(when.astimezone().replace(tzinfo=None)) == microseconds_of(when)
