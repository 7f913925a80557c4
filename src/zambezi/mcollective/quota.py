"""The quotas of topics: how many one client, one user and one address can make the middleware remember.

A topic costs memory once, however many clients subscribe to it. So it is charged to one of them, the payer: the client
that subscribed first, and when that one leaves, another one. A fleet whose nodes all subscribe to the same topics is
charged for them once.
"""

from __future__ import annotations

from collections import Counter

from zambezi.mcollective.bounds import Bounds
from zambezi.mcollective.session import Session, Topic


class Quota:
    """The number of topics that each user and each address pays for."""

    __slots__ = ("_addresses", "_bounds", "_users", "topics")

    def __init__(self, bounds: Bounds) -> None:
        self.topics = 0  # of all clients
        self._bounds = bounds
        self._users: Counter[str] = Counter()
        self._addresses: Counter[str] = Counter()

    def refusal(self, session: Session, wanted: int, new: int) -> str:
        """Return why a client cannot have `wanted` more topics, of which `new` do not exist; empty if it can."""
        bounds = self._bounds
        if len(session.topics) + len(session.replaying) + wanted > bounds.topics_of_client:
            return f"one client can subscribe to {bounds.topics_of_client} topics at most"
        if not new:
            return ""
        if session.user and self._users[session.user] + new > bounds.topics_of_user:
            return f"the clients of one user can have {bounds.topics_of_user} topics at most"
        if self._addresses[session.address] + new > bounds.topics_of_address:
            return f"the clients at one address can have {bounds.topics_of_address} topics at most"
        if self.topics + new > bounds.topics:
            return f"the middleware has {self.topics} topics, and no room for more"
        return ""

    def charge(self, topic: Topic) -> None:
        """Charge a topic to its payer."""
        self.topics += 1
        self._users[topic.payer.user] += 1
        self._addresses[topic.payer.address] += 1

    def release(self, topic: Topic) -> None:
        """End the charge of a topic."""
        self.topics -= 1
        for counter, name in ((self._users, topic.payer.user), (self._addresses, topic.payer.address)):
            counter[name] -= 1
            if not counter[name]:
                del counter[name]

    def pass_on(self, topic: Topic) -> None:
        """Charge a topic to another of its clients: its payer has left it."""
        self.release(topic)
        topic.payer = next(iter(topic.subscribers or topic.replayers))
        self.charge(topic)
