"""The deletion and the truncation of streams in an object store, for threads of a broker. All functions block."""

from __future__ import annotations

from contextlib import suppress
from uuid import uuid4

from zambezi.zeps.errors import StoreError
from zambezi.zeps.store.catalog import StoredStream, find_stream
from zambezi.zeps.store.copying import settle, take_log
from zambezi.zeps.store.shell import ObjectStore
from zambezi.zeps.store.stream_log import State, StreamLog
from zambezi.zeps.store.truncation import clear_deleted, truncate


def delete_stream(store: ObjectStore, log: StreamLog, owner: bytes) -> None:
    """Delete a stream whose log is not run by an event loop any more; raise `StoreError` if that is not possible."""
    if log.is_putting:  # the event loop would have got the answer
        log = StreamLog(log.place, owner, log.incarnation, log.settings)
        take_log(store, log)
    log.delete()
    settle(store, log)
    if log.state is not State.DELETED:
        raise StoreError(f"it is {log.state.value} in the store")


def truncate_stream(store: ObjectStore, name: str, owner: bytes, last: int) -> StoredStream:
    """Remove all messages of a stream after a sequence, and return it: no broker owns it in its new place."""
    stream = store.run(find_stream(name))
    if stream is None:
        raise StoreError("it was deleted")
    made = store.run(truncate(stream, owner, last, uuid4()))
    if made.place != stream.place:
        with suppress(StoreError):  # the next owner tries again
            store.run(clear_deleted(stream.place))
    return made
