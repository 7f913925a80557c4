"""The latest records of the server's own log."""

import logging

from zambezi.console import logbook
from zambezi.console.logbook import Logbook


def test_the_latest_records_are_kept() -> None:
    book = Logbook()
    book.open()
    log = logging.getLogger("zambezi.test")
    try:
        for number in range(logbook.KEPT + 5):
            log.warning("record %d", number)
        log.warning("long %s", "x" * 5000)
        book.handle(logging.LogRecord("zambezi.test", logging.INFO, "", 0, "wrong %d", ("arguments",), None))
    finally:
        book.close()
    log.warning("after the end")
    rows = list(book.rows)
    assert len(rows) == logbook.KEPT
    assert rows[-1]["text"] == "wrong %d"
    assert len(rows[-2]["text"]) == logbook.LONG
    assert (rows[-3]["text"], rows[-3]["level"], rows[-3]["logger"]) == ("record 1004", "WARNING", "test")
    assert [one["number"] for one in rows[-2:]] == [logbook.KEPT + 6, logbook.KEPT + 7]
