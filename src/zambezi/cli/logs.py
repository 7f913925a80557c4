"""How a server logs: lines for people on a terminal, and JSON for everybody else."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final

from zambezi.wire.text import printable

_USUAL: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """A JSON object on each line."""

    def format(self, record: logging.LogRecord) -> str:
        told = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **{key: value for key, value in record.__dict__.items() if key not in _USUAL},
        }
        if record.exc_info:
            told["traceback"] = self.formatException(record.exc_info)
        return json.dumps(told, default=str)


class Lines(logging.Formatter):
    """A line for people: the time, how serious it is, and what happened."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s", "%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is of the standard library
        record.message = printable(record.message)  # strangers have a part in what is logged
        return super().formatMessage(record)


# Those who log in a server: we, and whom we stand on, when something is wrong.
_OURS: Final = "zambezi"
_OTHERS: Final = ("asyncio", "aiohttp")


def begin(form: str, level: str) -> None:
    """Log to standard error, in a form of the configuration: `text`, `json`, or `auto`."""
    handler = logging.StreamHandler(sys.stderr)
    text = form == "text" or (form == "auto" and sys.stderr.isatty())
    handler.setFormatter(Lines() if text else JsonLines())
    for name in (_OURS, *_OTHERS):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(level.upper() if name == _OURS else logging.WARNING)
