"""A backend that reads the streams of all brokers that share an object store; or of one that does not share.

The program gives the endpoint of one broker. That one names the others with the list of its streams, and each of them
lists its own. A question about a stream goes to the broker that has it. If the stream goes to another broker while it
is read, its broker says so, and the rest is read there.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final, TypeVar

from zambezi.spark.backend import Found, Request, SequenceRange, SizeIndex, StreamState
from zambezi.spark.broker_backend import BrokerBackend
from zambezi.spark.errors import ConnectionLost, MovedAway
from zambezi.spark.offsets import Position
from zambezi.zmtp.security import Security

_PAUSE: Final = 0.2  # seconds before the brokers are asked again which of them has a stream
_OTHER: Final = 5.0  # seconds for which another broker may be silent, before the brokers are listed again

T = TypeVar("T")


class SharedBackend:
    """The streams of a broker, and of those that share its object store."""

    def __init__(
        self,
        endpoint: str,
        security: Security,
        timeout: float,
        *,
        filters_keys: bool = False,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self.filters_keys = filters_keys
        self._endpoint = endpoint
        self._security = security
        self._timeout = timeout
        self._clock = clock
        self._sleep = sleep
        self._brokers: dict[str, BrokerBackend] = {}
        self._owners: dict[str, str] = {}  # the endpoints of streams, as the last lists have told

    def _at(self, endpoint: str) -> BrokerBackend:
        found = self._brokers.get(endpoint)
        if found is None:
            timeout = self._timeout if endpoint == self._endpoint else min(_OTHER, self._timeout)
            found = BrokerBackend(endpoint, self._security, timeout, filters_keys=self.filters_keys)
            self._brokers[endpoint] = found
        return found

    # The state of the streams

    def streams(self, names: Iterable[str] | None = None, pattern: str = "") -> dict[str, StreamState]:
        wanted = list(names) if names is not None else None
        return self._until_answered(lambda: self._list(wanted, pattern))

    def _list(self, names: list[str] | None, pattern: str) -> dict[str, StreamState]:
        first = self._at(self._endpoint)
        found = first.streams(names, pattern)
        self._owners |= dict.fromkeys(found, self._endpoint)
        for endpoint in first.others:
            there = self._at(endpoint).streams(names, pattern)
            self._owners |= dict.fromkeys(there.keys() - found.keys(), endpoint)
            found = {**there, **found}
        return found

    def _until_answered(self, action: Callable[[], T]) -> T:
        """Return the result of an action; repeat it if a broker does not answer: another one can have its streams."""
        deadline = self._clock() + self._timeout
        while True:
            try:
                return action()
            except ConnectionLost:
                if self._clock() >= deadline:
                    raise
                self._owners.clear()
                self._sleep(_PAUSE)

    def last_before(self, times: Mapping[str, int]) -> dict[str, int]:
        return self._of_each(times, BrokerBackend.last_before)

    def times_after(self, positions: Mapping[str, int]) -> dict[str, int]:
        return self._of_each(positions, BrokerBackend.times_after)

    def note_positions(self, reader: str, positions: Mapping[str, Position]) -> dict[str, str]:
        """Set the positions of a named reader, by stream. Return why the brokers refuse some, if they do."""

        def note_all() -> dict[str, str]:
            owners = self._owners_of(positions)
            refused: dict[str, str] = {}
            for endpoint in dict.fromkeys(owners.values()):
                part = {stream: one for stream, one in positions.items() if owners[stream] == endpoint}
                refused |= self._at(endpoint).note_positions(reader, part)
            return refused

        return self._until_answered(note_all)

    def _of_each(
        self, values: Mapping[str, int], ask: Callable[[BrokerBackend, Mapping[str, int]], dict[str, int]]
    ) -> dict[str, int]:
        def ask_all() -> dict[str, int]:
            owners = self._owners_of(values)
            found: dict[str, int] = {}
            for endpoint in dict.fromkeys(owners.values()):
                part = {stream: value for stream, value in values.items() if owners[stream] == endpoint}
                found |= ask(self._at(endpoint), part)
            return {stream: found[stream] for stream in values}

        return self._until_answered(ask_all)

    def size_indexes(self, ranges: Sequence[SequenceRange], step: int) -> list[SizeIndex | None]:
        def ask_all() -> list[SizeIndex | None]:
            owners = self._owners_of(one.stream for one in ranges)
            found: dict[int, SizeIndex | None] = {}
            for endpoint in dict.fromkeys(owners.values()):
                numbers = [number for number, one in enumerate(ranges) if owners[one.stream] == endpoint]
                indexes = self._at(endpoint).size_indexes([ranges[number] for number in numbers], step)
                found |= dict(zip(numbers, indexes, strict=True))
            return [found[number] for number in range(len(ranges))]

        return self._until_answered(ask_all)

    def _owners_of(self, streams: Iterable[str]) -> dict[str, str]:
        """Return the endpoints of streams. One that no broker has is asked for at the first one, which says why."""
        wanted = dict.fromkeys(streams)
        unknown = [stream for stream in wanted if stream not in self._owners]
        if unknown:
            self._list(unknown, "")
        return {stream: self._owners.get(stream, self._endpoint) for stream in wanted}

    # Messages

    def read(self, ranges: Sequence[SequenceRange], request: Request) -> Iterator[Found]:
        left = list(ranges)
        deadline = self._clock() + self._timeout
        while left:
            moved: list[SequenceRange] = []
            for endpoint, group in self._by_owner(left):
                for wanted, found in self._read_at(endpoint, group, request, moved):
                    deadline = self._clock() + self._timeout
                    yield wanted, found
            if moved:
                self._wait_for_owner(moved, deadline)
            left = moved

    def _by_owner(self, ranges: list[SequenceRange]) -> list[tuple[str, list[SequenceRange]]]:
        """Return ranges in their order, with the broker of each; those that follow each other at a broker together."""
        owners = self._until_answered(lambda: self._owners_of(one.stream for one in ranges))
        return [(endpoint, list(group)) for endpoint, group in groupby(ranges, lambda one: owners[one.stream])]

    def _read_at(
        self, endpoint: str, ranges: list[SequenceRange], request: Request, moved: list[SequenceRange]
    ) -> Iterator[Found]:
        """Read ranges at a broker; add what must be read at another one to `moved`."""
        left = deque(ranges)
        try:
            for wanted, found in self._at(endpoint).read_left(left, request):
                if isinstance(found, MovedAway):
                    moved.append(wanted)
                else:
                    yield wanted, found
        except ConnectionLost:
            if endpoint == self._endpoint:
                raise
            moved += left

    def _wait_for_owner(self, ranges: list[SequenceRange], deadline: float) -> None:
        """Forget which broker has some streams, and wait for a moment; raise `ConnectionLost` if it takes too long."""
        if self._clock() >= deadline:
            raise ConnectionLost(
                f"stream {ranges[0].stream!a} was at no broker for {self._timeout:g} seconds (option 'timeout')"
            )
        for one in ranges:
            self._owners.pop(one.stream, None)
        self._sleep(_PAUSE)

    def close(self) -> None:
        for broker in self._brokers.values():
            broker.close()
        self._brokers.clear()
