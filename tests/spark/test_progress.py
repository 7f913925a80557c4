"""zambezi.spark.progress: how far a streaming query is behind its streams."""

from __future__ import annotations

from zambezi.spark.backend import StreamState
from zambezi.spark.offsets import Offsets, Position
from zambezi.spark.progress import progress_report, unread_positions

STREAMS = {
    "read": StreamState("read", "i", 1, 9, 900, 0),
    "half": StreamState("half", "i", 1, 9, 900, 0),
    "trimmed": StreamState("trimmed", "i", 6, 9, 900, 0),
    "replaced": StreamState("replaced", "j", 1, 2, 900, 0),
    "new": StreamState("new", "i", 1, 3, 900, 0),
    "empty": StreamState("empty", "i", 1, 0, 0, 0),
}
PLANNED = Offsets(
    {
        "read": Position(9, "i"),
        "half": Position(4, "i"),
        "trimmed": Position(2, "i"),
        "replaced": Position(50, "i"),
        "gone": Position(5, "i"),
    }
)


def test_positions_of_streams_with_unread_messages() -> None:
    assert unread_positions(STREAMS, PLANNED) == {"half": 4, "trimmed": 5, "replaced": 0, "new": 0}


def test_the_report_of_a_query() -> None:
    unread = unread_positions(STREAMS, PLANNED)
    times = {"half": 990_000_000, "trimmed": 1_005_000_000, "replaced": 0, "new": 999_960_000}
    found = progress_report("tcp://host:1", STREAMS, unread, times, 7, 1000.0)
    assert found["description"] == "6 streams at tcp://host:1: 14 messages and 10 s behind, 7 messages lost"
    assert (found["behindMessages"], found["behindSeconds"], found["lostMessages"]) == (14, 10.0, 7)
    assert list(found["streams"]) == sorted(STREAMS)
    assert found["streams"]["half"] == {
        "sequence": 9,
        "incarnation": "i",
        "behindMessages": 5,
        "behindSeconds": 10.0,
    }
    assert found["streams"]["trimmed"]["behindSeconds"] == 0.0  # its time is in the future of this clock
    assert found["streams"]["read"]["behindMessages"] == 0


def test_a_query_without_streams() -> None:
    found = progress_report("data", {}, {}, {}, 0, 1000.0)
    assert found["description"] == "0 streams at data: 0 messages and 0 s behind, 0 messages lost"
