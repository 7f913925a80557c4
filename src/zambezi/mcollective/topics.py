"""The topics of the middleware: the clients that subscribe to each, and the client that pays for it (see `quota`).

A topic exists as long as it has a client, or a client that subscribes to it when its replay ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from zambezi.mcollective.bounds import Bounds
from zambezi.mcollective.quota import Quota
from zambezi.mcollective.session import Replay, Session, Topic


class Topics:
    """All topics by name. `keeps` says whether the archive keeps a topic."""

    __slots__ = ("_keeps", "by_name", "quota")

    def __init__(self, bounds: Bounds, keeps: Callable[[bytes], bool]) -> None:
        self.by_name: dict[bytes, Topic] = {}
        self._keeps = keeps
        self.quota = Quota(bounds)

    def refusal(self, session: Session, names: Iterable[bytes]) -> str:
        """Return why a client cannot have these topics too; empty if it can."""
        new = {name for name in names if name not in session.topics and name not in session.replaying}
        return self.quota.refusal(session, len(new), sum(name not in self.by_name for name in new))

    def join(self, session: Session, name: bytes) -> None:
        """Subscribe a client to a topic."""
        topic = self._topic(session, name)
        topic.subscribers[session] = None
        session.topics[name] = topic

    def join_after(self, session: Session, name: bytes, replay: Replay) -> None:
        """Subscribe a client to a topic when a replay ends. `leave` the topic first."""
        session.replaying[name] = replay
        session.replays[replay] = None
        self._topic(session, name).replayers[session] = None

    def leave(self, session: Session, name: bytes) -> None:
        """Unsubscribe a client from a topic; a topic without clients is forgotten."""
        live = session.topics.pop(name, None)
        replay = session.replaying.pop(name, None)
        if replay is not None:
            replay.topics.discard(name)
            if not replay.topics:
                del session.replays[replay]
        if live is None and replay is None:
            return
        topic = self.by_name[name]
        topic.subscribers.pop(session, None)
        topic.replayers.pop(session, None)
        if not topic.subscribers and not topic.replayers:
            del self.by_name[name]
            self.quota.release(topic)
        elif topic.payer is session:
            self.quota.pass_on(topic)

    def _topic(self, session: Session, name: bytes) -> Topic:
        """Return a topic; a new one is charged to the client."""
        topic = self.by_name.get(name)
        if topic is None:
            topic = self.by_name[name] = Topic(name, self._keeps(name), session)
            self.quota.charge(topic)
        return topic
