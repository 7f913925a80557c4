"""The position of a publisher in its own sequence of messages, which it shares with the broker.

The broker counts every PUBLISH of a publisher, and the publisher counts them, too. After a broken connection the broker
tells its count (RESUME-OK), and the publisher goes on after that number:

    messages     1 ... done        | again          | new
                 confirmed         | sent before    | never sent
                 or dropped        | and not        |
                                   | confirmed      |

If the broker has counted more than `done`, it has that many of the messages that were sent before: they must not be
sent again. It cannot have counted a message that was never sent.
"""

from __future__ import annotations

from zambezi.zeps.messages import Resume, ResumeOk


class Position:
    """The id and the epoch of a publisher, and how far it has come."""

    __slots__ = ("again", "done", "epoch", "found", "id")

    def __init__(self, publisher: bytes) -> None:
        self.id = publisher
        self.epoch = 0
        self.done = 0  # messages that are confirmed, or dropped
        self.again = 0  # messages at the head of the queue that were sent on an earlier connection
        self.found: int | None = None  # messages that the stream had of this publisher before this program

    def request(self) -> bytes:
        """Return the RESUME for a new connection."""
        return Resume(self.id, self.epoch, self.done).encode()[0]

    def resume(self, answer: ResumeOk) -> int:
        """Take the broker's answer; return how many messages at the head of the queue it has, and are done."""
        self.epoch = answer.epoch
        # What an earlier connection sent before the first RESUME is not counted: it must be sent again.
        arrived = 0 if self.found is None else max(0, min(answer.count - self.done, self.again))
        if self.found is None:
            self.found = answer.count
        self.done = answer.count
        self.again -= arrived
        return arrived

    def begin(self) -> int:
        """Note that this connection begins to send; return how many messages it sends again.

        From now on they are like new ones: the broker does not have them.
        """
        again, self.again = self.again, 0
        return again

    def note_confirmed(self, count: int) -> None:
        """Note that messages which were sent on this connection are confirmed, or dropped."""
        self.done += count

    def note_dropped(self, count: int) -> None:
        """Note that messages at the head of the queue are dropped. Those that the broker cannot have do not count."""
        again = min(self.again, count)
        self.again -= again
        self.done += again

    def note_lost(self, sent: int) -> None:
        """Note that the connection is lost: messages that were sent on it return to the head of the queue."""
        self.again += sent
