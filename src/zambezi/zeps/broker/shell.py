"""The operations that the engine of a broker leaves to its shell."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from zambezi.zeps.errors import Absent, ZepsError
from zambezi.zeps.journal import Span

if TYPE_CHECKING:
    from zambezi.zeps.broker.stream import BrokerStream


class Shell(Protocol):
    """The operations that the engine leaves to the broker: timers, threads for the disk, and the clock."""

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Call back after all input that can be read now has been read."""

    def warm(self, span: Span, callback: Callable[[], object]) -> None:
        """Load a part of a journal into the page cache, then call back."""

    def fetch(self, absent: Absent, callback: Callable[[ZepsError | None], object]) -> None:
        """Load messages that only the object store has, then call back with None or with the error."""

    def call_later(self, seconds: float, callback: Callable[[], object]) -> object:
        """Call back after a time."""

    def sync_journal(self, stream: BrokerStream) -> None:
        """Sync a journal to the disk, then call `stream.confirm_barriers`."""

    def wake_journal(self, stream: BrokerStream) -> None:
        """Wake an idle journal, then call `stream.on_woken`. The engine may ask again before that."""

    def work(self, action: Callable[[], object], callback: Callable[[ZepsError | None], object]) -> None:
        """Do something that waits for the disk, then call back with None or with the error; never before this returns.

        The actions are done one after another.
        """

    def work_long(self, action: Callable[[], object], callback: Callable[[ZepsError | None], object]) -> None:
        """Do the same on another thread: the action can take minutes, and must not delay the other ones."""

    def work_remote(self, action: Callable[[], object], callback: Callable[[ZepsError | None], object]) -> None:
        """Do the same on threads of their own, several actions at once: they wait for an object store."""

    def search(self, action: Callable[[], object], callback: Callable[[ZepsError | None], object]) -> None:
        """Do the same on threads of their own, for searches in journals."""

    def clock(self) -> float:
        """Return the time in seconds since 1970."""
