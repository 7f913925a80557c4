"""The commands that the engines give to an object store, and the store's answers.

An engine does no I/O. Its rules are *procedures*: generators that yield a command and receive the answer. A shell runs
a procedure against a real store (`zambezi.zeps.store.shell`), and the simulation of the tests runs the same procedure
against a store that fails, delays and repeats.

A store can fail a command, or fail to tell its outcome. `Failed` stands for both. The functions at the end of this
module repeat a failed command, unchanged, until the store gives another answer.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import count as count_from
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from zambezi.zeps.errors import StoreError, StoreSilent

FIRST_PAUSE: Final = 0.05  # seconds before a failed command is repeated; each pause is twice the one before
LONGEST_PAUSE: Final = 2.0
AT_ONCE: Final = 16  # commands of one procedure that run at the same time


Data: TypeAlias = bytes | tuple[bytes, ...]  # bytes, or parts that need not be copied to one place


def joined(data: Data) -> bytes:
    """Return data as one piece."""
    return data if isinstance(data, bytes) else b"".join(data)


@dataclass(frozen=True, slots=True)
class Put:
    """Store an object. With `create`, the store refuses if the key exists: the answer is `EXISTS`."""

    key: str
    data: Data
    create: bool = True

    @property
    def octets(self) -> bytes:
        """The bytes of the object."""
        return joined(self.data)


@dataclass(frozen=True, slots=True)
class Get:
    """Read an object, or `length` bytes of it from `start` on. The answer is `bytes`, or `MISSING`.

    With `as_view` the answer may be a `memoryview`, so that the store need not copy the bytes.
    """

    key: str
    start: int = 0
    length: int | None = None
    as_view: bool = False


@dataclass(frozen=True, slots=True)
class List:
    """List the objects whose keys begin with `prefix` and a slash. The answer is a list of `StoredObject`."""

    prefix: str


@dataclass(frozen=True, slots=True)
class Names:
    """List the names directly under `prefix`, as directories. The answer is a list of `str`."""

    prefix: str


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete objects. The answer is `DONE`, also for keys that do not exist."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Compute:
    """Call a function that takes long, on a thread of the shell. The answer is its result, or the error it raises."""

    action: Callable[[], Any]

    def run(self) -> Any:
        """Return the result, or the `StoreError` that the function raises."""
        try:
            return self.action()
        except StoreError as error:
            return error


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for some seconds. The answer is `DONE`."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Together:
    """Run several commands at the same time. The answer is a list of their answers, in order."""

    commands: tuple[Request, ...]


class StoredObject(NamedTuple):
    """An object in a listing. `time` is the store's own time of the last write, in seconds since 1970."""

    key: str
    size: int
    time: float


class Outcome(Enum):
    """An answer without data."""

    DONE = "done"
    EXISTS = "exists"
    MISSING = "missing"


DONE: Final = Outcome.DONE
EXISTS: Final = Outcome.EXISTS
MISSING: Final = Outcome.MISSING


class Failed(NamedTuple):
    """The store failed, or its answer was lost: the command may have been executed or not, or may be later."""

    reason: str
    is_refusal: bool = False  # whether an operator must do something: permissions, credentials, a bucket
    is_full: bool = False  # whether the store has no room


Request: TypeAlias = Put | Get | List | Names | Delete | Compute
Command: TypeAlias = Request | Wait | Together
Answer: TypeAlias = Any  # `Outcome`, `Failed`, `bytes`, a listing, names, or what a function returned
T = TypeVar("T")
Procedure: TypeAlias = Generator[Command, Any, T]


def pauses() -> Iterable[float]:
    """Yield the pauses between the attempts of a command."""
    return (min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(attempt, 16)) for attempt in count_from())


def within(procedure: Procedure[T], patience: float) -> Procedure[T]:
    """Run a procedure; raise `StoreSilent` if it pauses, because the store fails, for more than `patience` seconds."""
    waited = 0.0
    answer = None
    while True:
        try:
            command = procedure.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result
        if isinstance(command, Wait):
            waited += command.seconds
            if waited > patience:
                raise StoreSilent("the store does not answer: try again")
        answer = yield command


def ask(request: Request) -> Procedure[Any]:
    """Repeat a request, unchanged, until the store answers; return the answer."""
    for pause in pauses():
        answer = yield request
        if not isinstance(answer, Failed):
            return answer
        yield Wait(pause)
    raise AssertionError("pauses never end")


def ask_all(requests: Sequence[Request]) -> Procedure[list[Any]]:
    """Run requests, some at a time; repeat those that fail; return all answers in order."""
    answers: dict[int, Any] = {}
    waiting = list(range(len(requests)))
    failures = iter(pauses())
    while waiting:
        now, rest = waiting[:AT_ONCE], waiting[AT_ONCE:]
        found = yield Together(tuple(requests[index] for index in now))
        failed = [index for index, answer in zip(now, found, strict=True) if isinstance(answer, Failed)]
        answers |= dict(zip(now, found, strict=True))
        waiting = failed + rest
        if failed:
            yield Wait(next(failures))
    return [answers[index] for index in range(len(requests))]


def compute(action: Callable[[], T]) -> Procedure[T]:
    """Return the result of a function that takes long; raise its `StoreError`."""
    answer = yield Compute(action)
    if isinstance(answer, StoreError):
        raise answer
    result: T = answer
    return result


def put(key: str, data: Data, *, create: bool = True) -> Procedure[Outcome]:
    """Put an object, and repeat the very same bytes until the outcome is known: `DONE` or `EXISTS`."""
    answer: Outcome = yield from ask(Put(key, data, create))
    return answer


def get(key: str, start: int = 0, length: int | None = None) -> Procedure[bytes | None]:
    """Return the bytes of an object, or a part of them; None if it does not exist."""
    answer: bytes | Outcome = yield from ask(Get(key, start, length))
    return answer if isinstance(answer, bytes) else None


def view(key: str, start: int, length: int) -> Procedure[bytes | memoryview | None]:
    """Return a part of an object without a copy, if the store can do so; None if it does not exist."""
    answer: bytes | memoryview | Outcome = yield from ask(Get(key, start, length, as_view=True))
    return None if isinstance(answer, Outcome) else answer


def listing(prefix: str) -> Procedure[list[StoredObject]]:
    """Return the objects under a prefix, in the order of their keys."""
    answer: Sequence[StoredObject] = yield from ask(List(prefix))
    return sorted(answer)


def names(prefix: str) -> Procedure[list[str]]:
    """Return the names directly under a prefix, in order."""
    answer: Sequence[str] = yield from ask(Names(prefix))
    return sorted(answer)


def delete(keys: Iterable[str]) -> Procedure[None]:
    """Delete objects; those that do not exist do not matter."""
    doomed = tuple(keys)
    if doomed:
        yield from ask(Delete(doomed))
