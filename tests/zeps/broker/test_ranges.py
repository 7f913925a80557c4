"""zambezi.zeps.broker.ranges: parts of streams in bulk, as answers to requests."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.zeps.stage import PLENTY, Client, Stage, never_wait_for_the_disk
from zambezi.zeps.block import walk_messages
from zambezi.zeps.broker import ranges
from zambezi.zeps.broker.reports import describe_reader
from zambezi.zeps.journal import Policy, Span
from zambezi.zeps.messages import Attach, Ping, Publish, Subscribe
from zambezi.zeps.ranges import read_block_head, read_end, read_points, read_states, request


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with Stage(tmp_path) as made:
        yield made


def fill(stage: Stage, stream: str = "prices", batches: int = 10, size: int = 20) -> None:
    """Publish batches of three messages, a second between them."""
    publisher = stage.client(stream)
    for number in range(batches):
        publisher.publish_many([f"k{number}", "k", "k"], b"x" * size)
        stage.now += 1
    publisher.close()


def ask(stage: Stage, *requests: bytes, credit: int = PLENTY) -> Client:
    client = stage.client("$ranges", credit=credit)
    client.send(*requests, Ping())
    return client


def ends(client: Client) -> list[dict[str, Any]]:
    return [dict(read_end(message.body)) for message in client.delivered if message.key == "end"]


def blocks(client: Client) -> list[tuple[int, int, list[tuple[int, int]], list[int]]]:
    """Return of each block its first and last sequence, the pairs, and the sequences of its messages."""
    found = []
    for message in client.delivered:
        if message.key == "block":
            body = message.body
            head = read_block_head(body)
            numbers = [int.from_bytes(body[at : at + 8]) for at in range(20, head.messages, 8)]
            pairs = list(zip(numbers[::2], numbers[1::2], strict=True))
            assert len(pairs) == head.pairs
            sequences = [place.sequence for place in walk_messages(body[head.messages :])]
            found.append((head.first, head.last, pairs, sequences))
    return found


def sequences(client: Client) -> list[int]:
    return [sequence for block in blocks(client) for sequence in block[3]]


# Reading


@pytest.mark.parametrize(("after", "last"), [(0, 30), (0, 1), (29, 30), (4, 17), (30, 30), (0, 1 << 62)])
def test_a_range_is_read(stage: Stage, after: int, last: int) -> None:
    fill(stage)
    client = ask(stage, request("read", stream="prices", after=after, last=last))
    assert [number for number in sequences(client) if number <= last] == list(range(after + 1, min(last, 30) + 1))
    assert ends(client) == [{"result": "all"}]
    assert client.confirmed == 1


def test_a_block_has_the_times_of_its_batches(stage: Stage) -> None:
    beginning = int(stage.now * 1_000_000)
    fill(stage, batches=3)
    [(first, last, pairs, _)] = blocks(ask(stage, request("read", stream="prices", after=1)))
    assert (first, last) == (2, 9)
    assert pairs == [(1, beginning), (4, beginning + 1_000_000), (7, beginning + 2_000_000)]


def test_many_ranges_are_answered_in_order(stage: Stage) -> None:
    for number in range(20):
        fill(stage, f"s{number}", 1)
    client = ask(stage, *[request("read", stream=f"s{number}", last=number % 3 + 1) for number in range(20)])
    assert [block[0] for block in blocks(client)] == [1] * 20
    assert [block[1] >= number % 3 + 1 for number, block in enumerate(blocks(client))] == [True] * 20
    assert len(ends(client)) == 20
    assert [message.sequence for message in client.delivered] == list(range(1, 41))


def test_little_more_is_sent_than_was_asked_for(stage: Stage) -> None:
    fill(stage, batches=1000, size=100)
    assert len(sequences(ask(stage, request("read", stream="prices", after=100, last=120)))) < 30


def test_a_large_range_goes_out_as_credit_pays_for_it(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "WHOLE", 500)
    fill(stage, batches=30)
    client = ask(stage, request("read", stream="prices"), credit=1)
    assert len(blocks(client)) == 1
    while not ends(client):
        client.credit(400)
    assert sequences(client) == list(range(1, 91))


def test_a_pattern(stage: Stage) -> None:
    fill(stage)
    client = ask(stage, request("read", stream="prices", pattern="exact:k"))
    assert sequences(client) == [number for number in range(1, 31) if number % 3 != 1]
    assert sequences(ask(stage, request("read", stream="prices", pattern="regex:k[23]"))) == [7, 10]
    client = ask(stage, request("read", stream="prices", pattern="exact:no"))
    assert (blocks(client), ends(client)) == ([], [{"result": "all"}])


def test_a_bare_range_has_times_and_no_messages(stage: Stage) -> None:
    fill(stage)
    [(first, last, pairs, found)] = blocks(ask(stage, request("read", stream="prices", after=4, bare=True)))
    assert (first, last, len(pairs), found) == (5, 30, 9, [])


def test_a_log_that_is_not_in_memory_is_loaded_first(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(stage)
    monkeypatch.setattr(Span, "is_resident", lambda span: False)
    client = ask(stage, request("read", stream="prices"), request("read", stream="prices", pattern="exact:k"))
    assert client.delivered == []
    stage.warm_up()
    assert len(sequences(client)) == 0
    client.read()
    assert len(sequences(client)) == 30
    stage.warm_up()
    client.read()
    assert len(sequences(client)) == 50
    assert client.confirmed == 1


# Streams that change


def test_messages_that_are_not_kept_any_more(tmp_path: Path) -> None:
    with Stage(tmp_path, policy=Policy(sync="never", segment=300, keep_bytes=600)) as stage:
        fill(stage)
        stage.tick()
        oldest = stage.stream("prices").journal.first
        assert oldest > 1
        client = ask(stage, request("read", stream="prices"), request("read", stream="prices", after=oldest - 1))
        assert ends(client) == [{"result": "trimmed", "oldest": oldest}, {"result": "all"}]
        assert sequences(client) == list(range(oldest, 31))


def test_streams_that_do_not_exist_or_are_others(stage: Stage) -> None:
    fill(stage)
    client = ask(
        stage,
        request("read", stream="no"),
        request("cut", stream="no"),
        request("read", stream="prices", incarnation="another"),
        request("read", stream="prices", incarnation=str(stage.stream("prices").journal.incarnation)),
    )
    incarnation = str(stage.stream("prices").journal.incarnation)
    assert ends(client) == [
        {"result": "vanished"},
        {"result": "vanished"},
        {"result": "replaced", "incarnation": incarnation},
        {"result": "all"},
    ]


def test_the_position_of_a_program_is_noted(stage: Stage) -> None:
    fill(stage)  # the third batch has sequences 7 to 9, and is eight seconds old
    incarnation = str(stage.stream("prices").journal.incarnation)

    def note(position: int, reader: str = "spark", user: str = "ann", **more: str) -> dict[str, Any]:
        client = stage.client("$ranges", credit=PLENTY, user=user)
        client.send(request("note", stream="prices", reader=reader, position=position, **more))
        (end,) = ends(client)
        return end

    def shown() -> dict[str, Any]:
        (state,) = stage.stream("prices").readers.all()
        return describe_reader(stage.stream("prices"), state)

    assert note(7, incarnation=incarnation) == {"result": "all"}
    assert (shown()["position"], shown()["lag"], shown()["behind"], shown()["user"]) == (7, 23, 8.0, "ann")
    written = stage.stream("prices").journal.positions.written
    assert note(7) == {"result": "all"}
    assert stage.stream("prices").journal.positions.written == written
    assert note(4) == {"result": "all"}  # a query that was started again can begin earlier
    assert (shown()["position"], shown()["behind"]) == (4, 9.0)
    assert note(30) == {"result": "all"}
    assert (shown()["lag"], shown()["behind"]) == (0, 0.0)
    assert note(5, incarnation="another") == {"result": "replaced", "incarnation": incarnation}
    for end, reason in (
        (note(31), "the last sequence of this stream is 30, not 31"),
        (note(5, ""), "a reader needs a name; this one is empty"),
        (note(5, user="bob"), "the reader spark belongs to another user: choose another name"),
    ):
        assert end == {"result": "refused", "reason": reason}
    stage.stream("prices").journal.policy = replace(stage.stream("prices").journal.policy, readers=1)
    assert note(5, "second")["result"] == "refused"
    assert stage.engine.counters.readers_refused == 1
    assert shown()["position"] == 30


@pytest.mark.parametrize("again", [False, True])
def test_a_stream_that_is_deleted_while_it_is_read(stage: Stage, monkeypatch: pytest.MonkeyPatch, again: bool) -> None:
    monkeypatch.setattr(ranges, "WHOLE", 200)
    fill(stage)
    client = ask(stage, request("read", stream="prices"), credit=1)
    admin = stage.client("$admin", credit=PLENTY)
    admin.send(Publish("delete", json.dumps({"stream": "prices"}).encode()))
    if again:
        fill(stage)
    client.credit(PLENTY)
    assert [end["result"] for end in ends(client)] == ["replaced" if again else "vanished"]
    assert client.confirmed == 1


def test_only_readable_streams_are_read(tmp_path: Path) -> None:
    may_read = True

    def allow(user: str, action: str, stream: str) -> bool:
        return stream != "secret" and (action != "subscribe" or may_read)

    with Stage(tmp_path, allow=allow, streams=["secret", "prices"]) as stage:
        fill(stage, batches=400, size=1000)
        client = ask(stage, request("read", stream="secret"), request("read", stream="prices"), credit=200)
        assert ends(client) == [{"result": "forbidden"}]
        may_read = False
        client.credit(PLENTY)
        assert ends(client)[1:] == [{"result": "forbidden"}]
        assert 0 < len(sequences(client)) < 1200


def test_a_journal_that_cannot_be_read(stage: Stage) -> None:
    fill(stage)
    path = stage.stream("prices").journal.directory / "00000000000000000001.idx"
    octets = bytearray(path.read_bytes())
    octets[27] ^= 1
    path.write_bytes(octets)
    client = ask(stage, request("read", stream="prices"))
    [end] = ends(client)
    assert end["result"] == "unreadable"
    assert "is damaged" in end["reason"]
    client.send(request("list"), Ping())
    assert client.confirmed == 2


# States and points


def test_streams_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    never_wait_for_the_disk(monkeypatch)
    monkeypatch.setattr(ranges, "_STATES", 7)
    with Stage(tmp_path, streams=[f"s{number:02d}" for number in range(30)]) as stage:
        fill(stage)

        def listed(**fields: object) -> list[str]:
            client = ask(stage, request("list", **fields))
            assert ends(client) == [{"result": "all"}]
            return [
                state.stream
                for message in client.delivered
                if message.key == "states"
                for state in read_states(message.body)
            ]

        assert len(listed()) == 31
        assert listed(pattern="s0") == [f"s{number:02d}" for number in range(10)]
        assert listed(pattern="glob:*7") == ["s07", "s17", "s27"]
        assert listed(names=["s03", "no", "prices"]) == ["s03", "prices"]
        with monkeypatch.context() as patch:
            patch.setattr(type(stage.engine), "names", lambda engine: pytest.fail("all streams are walked"))
            assert listed(pattern="exact:s11") == ["s11"]
            assert listed(pattern="exact:no") == []


def test_the_state_of_a_stream(stage: Stage) -> None:
    beginning = int(stage.now * 1_000_000)
    fill(stage)
    [answer, _] = ask(stage, request("list", names=["prices"])).delivered
    journal = stage.stream("prices").journal
    expected = (
        "prices",
        str(journal.incarnation),
        1,
        30,
        journal.octets,
        beginning,
        beginning + 9_000_000,
    )
    assert [tuple(state) for state in read_states(answer.body)] == [expected]


def test_a_list_of_few_of_many_streams_lets_others_have_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    never_wait_for_the_disk(monkeypatch)
    monkeypatch.setattr(ranges, "_REFUSED", 5)
    with Stage(tmp_path, streams=[f"s{number}" for number in range(30)]) as stage:
        waits: list[Callable[[], int]] = []
        wait = stage.engine.turns.wait

        def counted(work: Callable[[], int]) -> None:
            waits.append(work)
            wait(work)

        monkeypatch.setattr(stage.engine.turns, "wait", counted)
        ask(stage, request("list", pattern="glob:*no"))
        assert len(waits) == 6


def cut(stage: Stage, **fields: object) -> tuple[list[tuple[int, int]], dict[str, Any]]:
    client = ask(stage, request("cut", stream="prices", **fields))
    points = [point for message in client.delivered if message.key == "points" for point in read_points(message.body)]
    assert client.delivered[0].key == "states"
    [end] = ends(client)
    return points, end


def test_points_of_a_stream(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    beginning = int(stage.now * 1_000_000)
    fill(stage)
    monkeypatch.setattr(ranges, "_POINTS", 2)
    size = stage.stream("prices").journal.octets
    second = 1_000_000
    assert cut(stage) == ([(1, 0), (31, size)], {"result": "all", "after": 0, "last": 30, "time": beginning})
    assert cut(stage, step=1)[0] == [(3 * batch + 1, size * batch // 10) for batch in range(11)]
    assert cut(stage, after=3, last=9)[0] == [(4, 0), (10, size // 5)]

    def range_of(**fields: object) -> tuple[int, int, int]:
        end = cut(stage, **fields)[1]
        return end["after"], end["last"], end["time"]

    assert range_of(since=beginning + second, until=beginning + 3 * second) == (3, 9, beginning + second)
    assert range_of(since=beginning + second + 1)[0] == 6
    assert range_of(since=beginning + 60 * second) == (30, 30, 0)
    assert cut(stage, after=30) == ([], {"result": "all", "after": 30, "last": 30, "time": 0})


# Requests that are not valid


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Publish("steal", b"{}"), "there is no request 'steal': there are list, cut, read"),
        (Publish("read", b"[]"), "the body of a request must be a JSON object"),
        (Publish("read", b"[" * 10_000), "the body of a request must be a JSON object"),
        (Publish("read", b" " * 70_000), "a request of 70000 bytes is longer than 65536"),
        (request("read", stream=5), "'stream' must be a string"),
        (request("read", pattern="\ud800"), "'pattern' must be a string, without lone surrogates"),
        (request("list", pattern="regex:\ud800"), "'pattern' must be a string, without lone surrogates"),
        (request("read", after=-1), "'after' must be a number from 0"),
        (request("read", after=True), "'after' must be a number from 0"),
        (request("read", last=1 << 64), "'last' must be a number from 0"),
        (request("read", bare=1), "'bare' must be true or false"),
        (request("read", bare=True, pattern="k"), "'bare' blocks have no keys"),
        (request("read", pattern="regex:("), "regex"),
        (request("list", names="prices"), "'names' must be a list of strings"),
        (request("list", names=[1]), "'names' must be a list of strings"),
        (Subscribe("", 0), "this stream takes orders: it has no messages"),
    ],
)
def test_a_request_that_is_not_valid(stage: Stage, message: Publish | Subscribe | bytes, reason: str) -> None:
    client = stage.client("$ranges", credit=PLENTY)
    client.send(message, request("list"), Ping())
    assert reason in client.reasons[0]
    assert ends(client) == [{"result": "all"}]
    assert client.confirmed == 1


def test_requests_that_wait_are_bounded(stage: Stage) -> None:
    client = stage.client("$ranges")
    client.send(*[request("list")] * (ranges.WAITING + 5))
    assert client.reasons == [f"{ranges.WAITING} requests of this connection wait already"] * 5
    client.send(Ping())
    client.credit(PLENTY)
    assert len(ends(client)) == ranges.WAITING
    assert client.confirmed == 1


def test_a_client_that_leaves_in_the_middle(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "WHOLE", 200)
    fill(stage)
    client = ask(stage, request("read", stream="prices"), credit=1)
    client.detach()
    assert client.said[-1] == "DetachOk"
    other = stage.client()
    other.send(Attach("$ranges"), request("read", stream="prices"))
    other.close()
    stage.tick()
