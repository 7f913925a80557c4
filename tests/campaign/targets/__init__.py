"""The targets of mutated inputs: every parser and every session of the project that reads what others wrote."""

from collections.abc import Callable
from random import Random

from tests.campaign.target import Target
from tests.campaign.targets import journal, mcollective, zeps, zmtp, zre

TARGETS: dict[str, tuple[int, Callable[[Random], Target]]] = {
    made.name: (made.share, made) for module in (zmtp, zeps, zre, mcollective, journal) for made in module.TARGETS
}
