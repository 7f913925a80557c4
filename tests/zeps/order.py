"""The order of numbered messages: each is in the stream once, and those of a publisher come in order."""

from __future__ import annotations

from collections.abc import Callable


class Lost(AssertionError):
    """Something that must hold did not."""


class Order:
    """The numbers of one publisher's messages, from 0 on.

    The broker refuses some of them (`refused`). A publisher that `drops` messages can leave out others.
    """

    def __init__(
        self, publisher: str, refused: Callable[[int], bool] = lambda number: False, drops: bool = False
    ) -> None:
        self.kept = 0
        self._following = 0  # the next number, if the broker does not refuse it
        self._publisher = publisher
        self._refused = refused
        self._drops = drops

    @property
    def following(self) -> int:
        """The next number."""
        while self._refused(self._following):
            self._following += 1
        return self._following

    def take(self, number: int) -> None:
        """Check the next message of the publisher."""
        if self._refused(number):
            raise Lost(f"{self._publisher}: {number} is in the stream, and the broker had to refuse it")
        following = self.following
        if number < following:
            raise Lost(f"{self._publisher}: {number} came again, instead of {following}")
        if number > following and not self._drops:
            raise Lost(f"{self._publisher}: {following} is missing before {number}")
        self._following = number + 1
        self.kept += 1

    def check_end(self, published: int, dropped: int = 0) -> None:
        """Check that all messages below a number came, except those that were refused or dropped."""
        expected = sum(not self._refused(number) for number in range(published))
        if self._following > published or not expected - dropped <= self.kept <= expected:
            raise Lost(
                f"{self._publisher}: {published} were published, {published - expected} of them to be refused, "
                f"{dropped} were dropped, and {self.kept} are kept"
            )
