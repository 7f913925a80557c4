"""Errors of tables: those of disks and object stores in one line that names the place and the cause."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from zambezi.spark.errors import SparkError
from zambezi.zeps.store.problems import reason_of


class TableError(SparkError):
    """A table that cannot be read or written. The text says why, and what to do."""


class InUse(TableError):
    """A table that another run has written to at the same time. The text says which run, and what to do."""


@contextmanager
def explained(place: str) -> Iterator[None]:
    """Raise errors of a disk or a store as TableError, with the place and the cause in one line."""
    try:
        yield
    except SparkError:
        raise
    except Exception as error:
        if isinstance(error, OSError) or type(error).__module__.startswith(("deltalake", "_internal", "pyarrow")):
            raise TableError(f"{place}: {reason_of(error)}") from error
        raise
