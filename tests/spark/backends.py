"""Messages of a backend, without a reader."""

from __future__ import annotations

from collections.abc import Generator

from zambezi.spark.backend import Backend, Request, SequenceRange
from zambezi.spark.columns import EncodedMessages, find_messages
from zambezi.spark.errors import DataLoss


def read_messages(backend: Backend, wanted: SequenceRange, pattern: str = "") -> Generator[EncodedMessages]:
    """Yield the messages of a range; raise the error if messages do not exist any more."""
    for _, found in backend.read([wanted], Request(pattern)):
        if isinstance(found, DataLoss):
            raise found
        assert isinstance(found, EncodedMessages)
        yield found


def read_sequences(backend: Backend, wanted: SequenceRange, pattern: str = "") -> list[int]:
    """Return the sequences of all messages that a backend yields for a range."""
    return [
        sequence
        for messages in read_messages(backend, wanted, pattern)
        for sequence in find_messages(messages.octets).sequences().tolist()
    ]
