"""Errors of Spark without a log of PySpark's own: whoever catches an error tells what it means.

When an exception of a query is created, PySpark logs it as a line of JSON with the trace of Java. For that, it lets all
handlers of the program write JSON.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from pyspark.errors import PySparkException

_is_quiet: ContextVar[bool] = ContextVar("_is_quiet", default=False)
_log: Final[Any] = getattr(PySparkException, "_log_exception", None)


@contextmanager
def unlogged() -> Iterator[None]:
    """Let PySpark log no exceptions of this thread."""
    before = _is_quiet.set(True)
    try:
        yield
    finally:
        _is_quiet.reset(before)


def _log_unless_quiet(error: PySparkException) -> None:
    if not _is_quiet.get():
        _log(error)


if _log is not None:
    setattr(PySparkException, "_log_exception", _log_unless_quiet)  # noqa: B010 - it is not public
