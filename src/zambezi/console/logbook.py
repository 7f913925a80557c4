"""The server's own log: its latest records, for the console."""

from __future__ import annotations

import logging
from collections import deque
from typing import Any, Final

KEPT: Final = 1000  # records
LONG: Final = 1000  # characters of a message


class Logbook(logging.Handler):
    """A handler that keeps the latest records of the server."""

    def __init__(self) -> None:
        super().__init__()
        self._count = 0
        self.rows: deque[dict[str, Any]] = deque(maxlen=KEPT)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record. Its message can have text from the network."""
        try:
            text = record.getMessage()
        except Exception:  # a record with wrong arguments must not end the code that logs it
            text = str(record.msg)
        self._count += 1
        self.rows.append(
            {
                "number": self._count,
                "time": round(record.created * 1000),
                "level": record.levelname,
                "logger": record.name.removeprefix("zambezi."),
                "text": text[:LONG],
            }
        )

    def open(self) -> None:
        """Begin to keep the records of the server."""
        logging.getLogger("zambezi").addHandler(self)

    def close(self) -> None:
        """End it."""
        logging.getLogger("zambezi").removeHandler(self)
        super().close()
