"""zambezi.zeps.store.runner and commands: requests out, answers in."""

from tests.zeps.store.shelf import Shelf
from zambezi.zeps.errors import StoreDamaged, ZepsError
from zambezi.zeps.store.commands import (
    AT_ONCE,
    DONE,
    MISSING,
    Failed,
    Get,
    Procedure,
    Put,
    ask_all,
    delete,
    get,
    listing,
    pauses,
    put,
)
from zambezi.zeps.store.runner import Runner


def test_a_failed_request_is_repeated_after_a_pause() -> None:
    runner = Runner()
    results: list[object] = []
    runner.start(put("key", b"x"), 10.0, results.append, results.append)
    (first,) = runner.requests(10.0)
    runner.answer(first.number, Failed("down"), 11.0)
    assert runner.requests(11.0) == []
    assert runner.next_time == 11.05
    (second,) = runner.requests(11.05)
    assert second.request == first.request
    runner.answer(first.number, DONE, 12.0)  # late: no procedure waits for it
    assert not results
    runner.answer(second.number, DONE, 12.0)
    assert results == [DONE]
    assert runner.is_idle


def test_pauses_grow_up_to_a_bound() -> None:
    found = [pause for pause, _ in zip(pauses(), range(40), strict=False)]
    assert found[:3] == [0.05, 0.1, 0.2]
    assert max(found) == found[-1] == 2.0


def test_many_requests_run_together_and_only_failed_ones_are_repeated() -> None:
    shelf = Shelf()
    for number in range(40):
        shelf.execute(Put(f"k/{number}", b"%d" % number))
    shelf.requests.clear()
    shelf.failures = 3
    found = shelf.run(ask_all([Get(f"k/{number}") for number in range(41)]))
    assert found == [b"%d" % number for number in range(40)] + [MISSING]
    assert len(shelf.requests) == 44
    runner = Runner()
    runner.start(ask_all([Get("key")] * 50), 0.0, lambda _: None, lambda _: None)
    assert len(runner.requests(0.0)) == AT_ONCE


def test_an_error_ends_a_procedure() -> None:
    def broken() -> Procedure[None]:
        yield from get("key")
        raise StoreDamaged("broken")

    errors: list[ZepsError] = []
    runner = Runner()
    runner.start(broken(), 0.0, lambda _: None, errors.append)
    (ticket,) = runner.requests(0.0)
    runner.answer(ticket.number, MISSING, 0.0)
    assert str(errors[0]) == "broken"
    runner.start(put("key", b""), 0.0, lambda _: None, errors.append)
    runner.clear()
    assert runner.requests(0.0) == []


def test_objects_are_listed_in_order_and_deleted() -> None:
    shelf = Shelf()
    for key in ("a/2", "a/1", "ab/1"):
        assert shelf.run(put(key, b"x")) is DONE
    assert [found.key for found in shelf.run(listing("a"))] == ["a/1", "a/2"]
    shelf.run(delete(["a/1", "a/9"]))
    assert shelf.run(get("a/1")) is None
    shelf.requests.clear()
    shelf.run(delete([]))
    assert not shelf.requests
