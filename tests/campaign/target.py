"""A target: a parser or a session that gets mutated inputs.

`feed` handles one input, and raises only the errors that it declares; any other exception is a failure. `check` does
something lawful after hostile inputs, and raises if that does not work any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TypeAlias

from tests.campaign.mutations import Frames, Mutator

LIVE = 25  # inputs of one hostile session
Input: TypeAlias = bytes | Frames


class Target:
    """Inputs made of seeds, and what gets them. `share` is the weight of the target in a campaign."""

    name = ""
    share = 10
    errors: tuple[type[Exception], ...] = ()  # the errors that are declared

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.mutator = Mutator(chance)
        self.history: list[Input] = []  # the inputs since the state was new: they reproduce a failure

    def feed(self) -> None:
        """Make one input, and handle it."""
        raise NotImplementedError

    def check(self) -> None:
        """Do something lawful, and raise if it does not work."""

    def renew(self) -> None:
        """Start with new state, after a failure."""

    def close(self) -> None:
        """Release files."""


class ParserTarget(Target):
    """A target without state: each input is independent of the others."""

    def __init__(self, chance: Random, seeds: Sequence[bytes], parse: Callable[[bytes], object]) -> None:
        super().__init__(chance)
        self._seeds = seeds
        self._parse = parse

    def feed(self) -> None:
        seeds, below = self._seeds, self.mutator.below
        octets = self.mutator.mutate(seeds[below(len(seeds))], seeds[below(len(seeds))])
        self.history = [octets]
        self._parse(octets)

    def check(self) -> None:
        for seed in self._seeds:
            self._parse(seed)


class FramesTarget(Target):
    """Like `ParserTarget`, for messages of several frames."""

    def __init__(self, chance: Random, seeds: Sequence[Frames], parse: Callable[[Frames], object]) -> None:
        super().__init__(chance)
        self._seeds = seeds
        self._parse = parse

    def feed(self) -> None:
        seeds, below = self._seeds, self.mutator.below
        frames = self.mutator.mutate_frames(seeds[below(len(seeds))], seeds[below(len(seeds))])
        self.history = [frames]
        self._parse(frames)

    def check(self) -> None:
        for seed in self._seeds:
            self._parse(seed)


class SessionTarget(Target):
    """Hostile sessions of `LIVE` inputs each: `begin` starts one, `receive` gets an input, `end` ends it.

    An input is one of the seeds, changed or (so that sessions get further) as it is.
    """

    seeds: Sequence[Frames] = ()
    unchanged = 0.3

    def __init__(self, chance: Random) -> None:
        super().__init__(chance)
        self._left = 0

    def feed(self) -> None:
        if not self._left:
            self._left = LIVE
            self.history = []
            self.begin()
        seeds, mutator = self.seeds, self.mutator
        frames = seeds[mutator.below(len(seeds))]
        if self.chance.random() > self.unchanged:
            frames = mutator.mutate_frames(frames, seeds[mutator.below(len(seeds))])
        self.history.append(frames)
        self.receive(frames)
        self._left -= 1
        if not self._left:
            self.end()
            self.check()

    def renew(self) -> None:
        self._left = 0
        self.start()

    def start(self) -> None:
        """Make the state that all sessions share."""

    def begin(self) -> None:
        """Begin a hostile session."""

    def receive(self, frames: Frames) -> None:
        """Handle a message of the hostile session."""
        raise NotImplementedError

    def end(self) -> None:
        """End the hostile session."""
