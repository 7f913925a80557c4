"""What clients may ask of a middleware, and what is counted."""

from __future__ import annotations

from dataclasses import dataclass

from zambezi.zmtp import transport


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What clients may ask of the middleware."""

    topics: int = 100_000  # with subscribers, of all clients together
    topics_of_client: int = 10_000
    topic_octets: int = 4096
    held_octets: int = 1024 * 1024  # for a client whose answer waits
    patience: float = 60.0  # seconds at least (or three TTLs) until the connection of a forgotten client is closed


@dataclass(slots=True)
class Counters(transport.Counters):
    """What was done, and what was not: by the middleware, beside what is counted for every socket."""

    commands: int = 0  # messages from clients, of any kind
    puts: int = 0  # that were taken
    deliveries: int = 0  # MESSAGEs handed to subscribers
    unheard: int = 0  # PUT to topics without subscribers
    missed: int = 0  # MESSAGEs that slow subscribers did not get
    errors: int = 0  # ERRORs that were said, the denied ones included
    malformed: int = 0  # messages out of the grammar, or with impossible values
    denied: int = 0  # commands that a rule does not allow
    absent: int = 0  # commands of clients that must CONNECT again
    ignored: int = 0  # OK and ERROR, which clients do not say, and which are not answered
    expired: int = 0  # clients that were forgotten
    kept: int = 0  # PUTs that went to the archive,
    lost: int = 0  # that it did not take,
    replayed: int = 0  # and MESSAGEs that came out of it
