"""A run: PUTs of one client that follow each other to the same topic, in one read."""

from __future__ import annotations

from zambezi.mcollective.messages import Frames
from zambezi.mcollective.session import PendingAnswer, Session, Topic


class Run:
    """The MESSAGEs of a run, and what they have in common."""

    __slots__ = ("answers", "kept", "messages", "name", "session", "topic")

    def __init__(self, session: Session, name: bytes, topic: Topic | None, kept: bool) -> None:
        self.session = session  # the client that says the PUTs
        self.name = name  # of the topic
        self.topic = topic  # None: it has no subscribers
        self.kept = kept  # whether the MESSAGEs go to the archive first
        self.messages: list[Frames] = []
        self.answers: list[PendingAnswer] = []  # to those PUTs that wait for the archive and have an ID
