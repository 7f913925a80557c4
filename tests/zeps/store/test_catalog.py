"""zambezi.zeps.store.catalog: streams by name, their generations, and prefixes that are none."""

from uuid import UUID, uuid4

import pytest

from tests.zeps.store.shelf import Shelf
from zambezi.zeps.errors import StoreDamaged, StoreError
from zambezi.zeps.store.catalog import StoredStream, check_format, find_stream, list_streams, make_stream
from zambezi.zeps.store.commands import Answer, Request
from zambezi.zeps.store.stream_log import StreamLog

ID = UUID(int=7)


def test_a_stream_is_made_once() -> None:
    shelf = Shelf()
    made = shelf.run(make_stream("a.b", ID, {"keep_bytes": 5}))
    assert shelf.run(make_stream("a.b", uuid4(), {})) == made
    assert shelf.run(find_stream("a.b")) == made
    assert shelf.run(find_stream("c")) is None
    assert shelf.run(list_streams()) == [made]
    assert (made.incarnation, made.settings, made.place.generation) == (ID, {"keep_bytes": 5}, 1)


def test_a_stream_that_was_deleted_and_is_made_again_has_its_own_place() -> None:
    shelf = Shelf()
    made = shelf.run(make_stream("prices", ID, {}))
    delete(shelf, made)
    assert shelf.run(find_stream("prices")) is None
    again = shelf.run(make_stream("prices", uuid4(), {}))
    assert again.place.generation == 2
    assert shelf.run(find_stream("prices")) == again


class Interrupted(Shelf):
    """A shelf on which another broker makes the stream before a request."""

    def __init__(self, made: list[StoredStream]) -> None:
        super().__init__()
        self.before = 0  # the number of the request
        self._made = made

    def execute(self, request: Request) -> Answer:
        self.before -= 1
        if not self.before:
            self._made.append(self.run(make_stream("prices", uuid4(), {})))
        return super().execute(request)


def delete(shelf: Shelf, stream: StoredStream) -> None:
    log = StreamLog(stream.place, b"m" * 16, stream.incarnation.bytes)
    log.take(0.0)
    shelf.settle(log)
    log.delete()
    shelf.settle(log)


@pytest.mark.parametrize("is_deleted", [False, True])
def test_brokers_that_make_a_stream_at_the_same_time_make_one(is_deleted: bool) -> None:
    number = made = 1
    while made:  # until the first broker has no more requests before which the second one can make the stream
        others: list[StoredStream] = []
        shelf = Interrupted(others)
        if is_deleted:
            delete(shelf, shelf.run(make_stream("prices", ID, {})))
        shelf.before = number
        found = shelf.run(make_stream("prices", uuid4(), {}))
        assert found.place.generation == 1 + is_deleted
        assert others in ([], [found])
        made = len(others)
        number += 1
    assert number > 4


def test_a_prefix_gets_its_format() -> None:
    shelf = Shelf()
    with pytest.raises(StoreError, match="not the prefix of a store"):
        shelf.run(check_format(create=False))
    shelf.run(check_format(create=True))
    shelf.run(check_format(create=False))
    shelf.store.objects["zambezi.json"] = (b'{"format": 99}', 0.0)
    with pytest.raises(StoreError, match="unknown format 99"):
        shelf.run(check_format(create=True))


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"[" * 100_000, b"{}", b'{"format": 1, "name": "other", "incarnation": "x"}', b'{"format": 2}'],
)
def test_an_identity_that_no_broker_writes_is_reported(content: bytes) -> None:
    shelf = Shelf()
    made = shelf.run(make_stream("prices", ID, {}))
    shelf.store.objects[made.place.identity] = (content, 0.0)
    with pytest.raises(StoreDamaged, match=r"stream\.json"):
        shelf.run(find_stream("prices"))
