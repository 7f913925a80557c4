"""Administration: clients create, change and delete streams of a running broker.

A client attaches to the reserved stream `$admin`, and publishes orders. The key of a message is the order, the body is
a JSON object:

    create     stream, settings         a new stream; it must not exist
    edit       stream, settings         other settings; a setting that is null becomes the default again
    trim       stream, before           the messages before a sequence are removed; or before a time (`before_time`)
    truncate   stream, after            the messages after a sequence are removed; the stream has a new incarnation
    delete     stream                   the stream is removed, with everything that belongs to it
    copy       stream, to               a new stream with the messages that a stream has now
    set_reader      stream, reader, latest    another position of a named reader, or a new one
    remove_reader   stream, reader            the reader is removed
    set_group       stream, group, latest     another position of a group of shared readers, which has no members
    remove_group    stream, group             the group is removed; it has no members

The broker executes the orders of a connection one after another: the messages after an order wait until it is executed.
So PING-OK confirms all orders before the PING. The answer to an order that fails is INVALID. `[[rules]]` decide:
`create` for a new stream, `edit` for its settings and named readers, `delete` for everything that removes messages.

A stream whose messages are cut off or removed loses its clients first. They are told why, with INVALID and DETACH.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from zambezi.wire.text import as_text, printable
from zambezi.zeps.about import about
from zambezi.zeps.broker.desk import Desk
from zambezi.zeps.broker.seeking import Sought
from zambezi.zeps.broker.stored_stream import StoredStream, finish_when_safe
from zambezi.zeps.broker.stream import BrokerStream, where_to_start
from zambezi.zeps.errors import Absent, BrokerError, JournalError, ZepsError
from zambezi.zeps.journal.copying import copy_messages
from zambezi.zeps.journal.names import directory_of
from zambezi.zeps.journal.policy import Policy
from zambezi.zeps.journal.positions import READER, Position
from zambezi.zeps.journal.store import Fill
from zambezi.zeps.journal.stored_policy import changed, merged

if TYPE_CHECKING:
    from zambezi.zeps.broker.engine import Action, Done, Engine
    from zambezi.zeps.broker.session import Session
    from zambezi.zeps.journal import Journal

_log: Final = logging.getLogger("zambezi.zeps")

_MICRO: Final = 1_000_000
LARGEST: Final = 64 * 1024  # bytes of an order: it is parsed on the thread of the event loop


class OrderDesk(Desk):
    """The orders of one connection: the next one is taken when the one before is executed."""

    def __init__(self, engine: Engine, session: Session) -> None:
        self._engine = engine
        self._session = session
        self.is_busy = False

    def order(self, key: bytes, body: bytes) -> None:
        """Begin to execute an order; the session's `end_order` follows, later. An order that fails at once is over.

        The stream can be at another broker, or be in the store and at no broker: then the order waits for it.
        """
        self.is_busy = True
        try:
            order = _Order(self._engine, self._session, body)
            execute = partial(order.execute, as_text(key), self._finish)
            if not order.seek(Sought(partial(self._go_on, execute))):
                self._execute(execute)
        except ZepsError as error:
            self.is_busy = False
            self._session.reject("order", str(error))

    def _go_on(self, execute: Callable[[], None], problem: str) -> None:
        try:
            if problem:
                raise BrokerError(problem)
            self._execute(execute)
        except ZepsError as error:
            self._finish(error)

    def _execute(self, execute: Callable[[], None]) -> None:
        """Execute an order, perhaps after a look into the store."""
        try:
            execute()
        except Absent as absent:
            self._engine.fetch(absent, lambda problem: self._go_on(execute, "" if problem is None else str(problem)))

    def _finish(self, error: ZepsError | None) -> None:
        self.is_busy = False
        self._session.end_order("" if error is None else str(error))


class _Order:
    """One order of a session."""

    def __init__(self, engine: Engine, session: Session, body: bytes) -> None:
        self._engine = engine
        self._session = session
        if len(body) > LARGEST:
            raise BrokerError(f"an order has at most {LARGEST} bytes, and this one has {len(body)}")
        try:
            content = json.loads(body)
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict):
            raise BrokerError("the body of an order must be a JSON object")
        self._content: dict[str, Any] = content

    def seek(self, waiting: Sought) -> bool:
        """Look for the stream of the order, if it is not here; return whether the order must wait for that."""
        name = self._content.get("stream")
        return isinstance(name, str) and self._engine.find(name) is None and self._engine.seek(name, waiting)

    def execute(self, key: str, done: Done) -> None:
        """Execute the order, and call back, now or later."""
        action = _ORDERS.get(key)
        if action is None:
            raise BrokerError(f"there is no order {key!a}: there are {', '.join(_ORDERS)}")
        action(self, done)

    def _create(self, done: Done) -> None:
        settings = merged({}, self._settings())
        changed(Policy(), settings)
        self._engine.check_settings(settings)
        self._make(self._text("stream"), settings, done)

    def _make(self, name: str, settings: Mapping[str, object], done: Done, fill: Fill | None = None) -> None:
        directory_of(name)
        if name.startswith("$"):
            raise BrokerError(f"{name} is a reserved name: choose one that does not begin with $")
        self._check("create", name)
        self._engine.create_stream(self._session, name, settings, partial(self._tell, "created", name, done), fill)

    def _edit(self, done: Done) -> None:
        stream = self._stream("edit")
        if self._engine.is_configured(stream.name):
            raise BrokerError(f"the settings of {stream.name} are in the server's configuration: change them there")
        self._engine.check_settings(self._settings())
        told = partial(self._tell, "changed", stream.name, done)
        self._engine.work(
            partial(self._engine.store.edit, stream.name, self._settings()), partial(_keep_settings, stream, told)
        )

    def _trim(self, done: Done) -> None:
        stream = self._stream("delete")
        first = self._number("before") if "before" in self._content else self._first_at(stream.journal)
        told = partial(self._tell, f"trimmed before {first}", stream.name, done)
        if isinstance(stream, StoredStream):
            stream.trim(first, partial(self._trim_cache, stream.journal, told))
        else:
            self._engine.work_long(partial(stream.journal.trim, first, self._engine.check_open), told)

    def _trim_cache(self, journal: Journal, done: Done, error: ZepsError | None) -> None:
        """Finish the trim of a stream in the store: its disk is a cache."""
        if error is not None:
            done(error)
        else:
            self._engine.work(journal.drop_trimmed, done)

    def _truncate(self, done: Done) -> None:
        stream = self._stream("delete")
        after = self._number("after")
        journal = stream.journal
        if not journal.first - 1 <= after <= journal.last:
            raise BrokerError(
                f"{stream.name} has sequences {journal.first} to {journal.last}: it cannot be cut after {after}"
            )
        if journal.is_trimming:
            raise BrokerError(f"{stream.name} is being trimmed: truncate it when that is done")
        told = partial(self._tell, f"truncated after {after}", stream.name, done)
        reason = f"an operator has cut off the messages after {after}"
        truncate = partial(self._engine.store.truncate, stream.name, after)
        self._engine.take_away(stream, reason, truncate, told, keep=True)

    def _delete(self, done: Done) -> None:
        stream = self._stream("delete")
        told = partial(self._tell, "deleted", stream.name, done)
        reason = "an operator has deleted the stream"
        self._engine.take_away(stream, reason, partial(self._engine.store.delete, stream.name), told, keep=False)

    def _copy(self, done: Done) -> None:
        stream = self._stream("subscribe")
        fill = partial(copy_messages, stream.journal, self._engine.check_open)
        self._make(self._text("to"), stream.journal.settings, done, fill)

    def _set_reader(self, done: Done) -> None:
        stream, name = self._stream("edit"), self._text("reader")
        stream.flush()
        position, due = where_to_start(stream.journal, self._number("latest"))
        if due:
            raise BrokerError("a reader cannot begin in the future: give a time that has passed")
        stream.readers.set(Position(READER, name, position, time=int(stream.clock() * _MICRO)))
        self._finish_reader(stream, name, f"set to {position}", done)

    def _remove_reader(self, done: Done) -> None:
        stream, name = self._stream("edit"), self._text("reader")
        stream.readers.remove(name)
        self._finish_reader(stream, name, "removed", done)

    def _set_group(self, done: Done) -> None:
        stream, name = self._stream("edit"), self._text("group")
        stream.flush()
        position, due = where_to_start(stream.journal, self._number("latest"))
        if due:
            raise BrokerError("a group cannot begin in the future: give a time that has passed")
        stream.groups.set(name, position)
        self._finish_reader(stream, name, f"set to {position}", done)

    def _remove_group(self, done: Done) -> None:
        stream, name = self._stream("edit"), self._text("group")
        stream.groups.remove(name)
        self._finish_reader(stream, name, "removed", done)

    def _finish_reader(self, stream: BrokerStream, name: str, what: str, done: Done) -> None:
        told = partial(self._tell, f"changed: its reader {printable(name)} was {what}", stream.name, done)
        if stream.is_shared:
            finish_when_safe(stream, told)
        else:
            self._engine.work(stream.journal.positions.sync, told)

    def _first_at(self, journal: Journal) -> int:
        """Return the first sequence at or after the time of the order, in microseconds since 1970."""
        return journal.before(self._number("before_time")) + 1

    # The parts of an order

    def _stream(self, action: Action) -> BrokerStream:
        name = self._text("stream")
        stream = self._engine.find(name)
        if stream is None:
            raise self._engine.absence(name)
        self._check(action, name)
        if action == "delete" and name in self._engine.options.own:
            raise BrokerError(f"{name} is a stream of the server itself")
        return stream

    def _check(self, action: Action, name: str) -> None:
        if not self._engine.allows(self._session, action, name):
            verb = "subscribe to" if action == "subscribe" else action
            raise BrokerError(f"{self._session.user_name} may not {verb} the stream {name}")

    def _text(self, name: str) -> str:
        value = self._content.get(name)
        if not isinstance(value, str) or not value:
            raise BrokerError(f"the order needs {name!a}, a text that is not empty")
        return value

    def _number(self, name: str) -> int:
        value = self._content.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise BrokerError(f"the order needs {name!a}, a sequence")
        return value

    def _settings(self) -> dict[str, object]:
        value = self._content.get("settings", {})
        if not isinstance(value, dict):
            raise BrokerError("settings must be an object")
        return value

    def _tell(self, what: str, name: str, done: Done, error: ZepsError | None) -> None:
        if error is None:
            user = printable(self._session.user or self._session.address)
            fields = {**about(name), "user": user, "change": what}
            _log.info("stream %s was %s by %s", printable(name), what, user or "this process", extra=fields)
        done(error)


def _keep_settings(stream: BrokerStream, done: Done, error: ZepsError | None) -> None:
    """Finish an order that has changed the settings of a stream, also in the store if it is there."""
    if error is None and isinstance(stream, StoredStream):
        try:
            stream.keep_settings()
        except JournalError as problem:
            done(problem)
        else:
            finish_when_safe(stream, done)
    else:
        done(error)


_ORDERS: Final[Mapping[str, Callable[[_Order, Done], None]]] = {
    "create": _Order._create,
    "edit": _Order._edit,
    "trim": _Order._trim,
    "truncate": _Order._truncate,
    "delete": _Order._delete,
    "copy": _Order._copy,
    "set_reader": _Order._set_reader,
    "remove_reader": _Order._remove_reader,
    "set_group": _Order._set_group,
    "remove_group": _Order._remove_group,
}
