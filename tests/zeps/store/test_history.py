"""The check of histories finds what is not linearizable."""

from tests.zeps.store.history import History

LOG = {1: (b"p", 1), 2: (b"p", 2)}


def history() -> History:
    made = History()
    made.begin(b"p", 1, 1.0)
    made.confirm(b"p", 1, 1, 2.0)
    made.begin(b"p", 2, 3.0)
    made.confirm(b"p", 2, 2, 4.0)
    return made


def test_reads_and_publishes_that_overlap_can_have_either_order() -> None:
    made = history()
    made.read(1, 3.1, 3.9)
    made.read(2, 3.2, 3.8)
    assert made.problem(LOG) == ""


def test_a_read_that_misses_a_confirmed_message_is_found() -> None:
    made = history()
    made.read(1, 4.1, 4.2)
    assert "found 1, and 2 was known" in made.problem(LOG)


def test_a_read_that_goes_back_is_found() -> None:
    made = history()
    made.read(2, 3.1, 3.2)
    made.read(1, 3.3, 3.4)
    assert "found 1, and 2 was known" in made.problem(LOG)


def test_a_read_of_the_future_is_found() -> None:
    made = history()
    made.read(2, 1.0, 2.5)
    assert "not published yet" in made.problem(LOG)


def test_messages_in_the_wrong_order_are_found() -> None:
    assert "was published when" in history().problem({1: (b"p", 2), 2: (b"p", 1)})
