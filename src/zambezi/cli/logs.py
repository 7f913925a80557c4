"""The log of a server: lines for people on a terminal, and JSON otherwise."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final

from zambezi.wire.text import printable

_USUAL: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """A format of log records: one JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **{key: value for key, value in record.__dict__.items() if key not in _USUAL},
        }
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str)


class Lines(logging.Formatter):
    """A format of log records for people: time, level, logger and message."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s", "%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the standard library's name
        record.message = printable(record.message)  # a message can contain text from the network
        return super().formatMessage(record)


# The loggers of a server: its own, and those of libraries, of which only warnings matter.
_OURS: Final = "zambezi"
_OTHERS: Final = ("asyncio", "aiohttp")


def begin(form: str, level: str) -> None:
    """Log to standard error, in a format of the configuration: `text`, `json` or `auto`."""
    handler = logging.StreamHandler(sys.stderr)
    text = form == "text" or (form == "auto" and sys.stderr.isatty())
    handler.setFormatter(Lines() if text else JsonLines())
    for name in (_OURS, *_OTHERS):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(level.upper() if name == _OURS else logging.WARNING)
