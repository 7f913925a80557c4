"""The bounds of what clients can ask of a middleware, and the counters of what it does."""

from __future__ import annotations

from dataclasses import dataclass

from zambezi.zmtp import transport


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The bounds of what clients can ask of the middleware."""

    topics: int = 100_000  # with subscribers, of all clients together
    topics_of_client: int = 1_000
    topics_of_user: int = 10_000  # that no client of another user made first, see `quota`
    topics_of_address: int = 10_000
    topic_bytes: int = 4096
    held_bytes: int = 1024 * 1024  # of messages that wait for one client: for a pending answer, or for its comeback
    backlog_bytes: int = 16 * 1024 * 1024  # of messages that wait for the comeback of all clients, see `backlog`
    reading_time: float = 5.0  # seconds that senders wait for a client with a full queue, see `pressure`
    register_bytes: int = 16 * 1024 * 1024  # of the sessions that outlive their connection, see `register`
    reserve_bytes: int = 64 * 1024 * 1024  # of messages above the bounds of all full queues, see `pressure`
    patience: float = 60.0  # seconds (or three TTLs, if longer) until the connection of a forgotten client is closed


@dataclass(slots=True)
class Counters(transport.Counters):
    """The counters of a middleware, beside those of every socket."""

    commands: int = 0  # messages from clients, of any kind
    puts: int = 0  # PUTs that were accepted
    deliveries: int = 0  # MESSAGEs to subscribers
    unheard: int = 0  # PUTs to topics without subscribers
    missed: int = 0  # MESSAGEs that slow subscribers did not get
    errors: int = 0  # ERRORs to clients, for denied commands too
    malformed: int = 0  # messages that are not in the grammar, or have impossible values
    denied: int = 0  # commands that no rule allows
    over_quota: int = 0  # SUBs above a bound of topics
    absent: int = 0  # commands of clients that must CONNECT again
    ignored: int = 0  # OK and ERROR from clients, which are not answered
    resumed: int = 0  # sessions that went on after a lost connection, or a restart of the middleware
    expired: int = 0  # clients that were silent for longer than their TTL
    kept: int = 0  # PUTs that went to the archive,
    lost: int = 0  # PUTs that it did not accept,
    replayed: int = 0  # and MESSAGEs that were read from it
