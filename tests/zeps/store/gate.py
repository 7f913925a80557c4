"""A way through TCP that can be cut: a server reaches its object store through a `Gate`, and a test closes it.

A cut works as it does between two machines: connections stay open, and what was sent arrives when the cut has ended. A
cut in one direction lets the other one pass.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from enum import Enum
from types import TracebackType
from typing import Any, Final, Self, TypeVar

T = TypeVar("T")
LATE: Final = 0.7  # seconds that each part of an answer takes, if answers are late
_PART: Final = 1 << 16


class Cut(Enum):
    """What a gate does to the traffic."""

    NONE = "open"
    BOTH = "no request and no answer arrives"
    REQUESTS = "no request arrives"
    ANSWERS = "requests are executed, and no answer arrives"
    REFUSED = "connections are refused"
    LATE = "answers arrive late"


class Gate:
    """A port that leads to another port of this machine."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._cut = Cut.NONE
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._changed = self._call(self._make_condition())
        self._server = self._call(asyncio.start_server(self._accept, "127.0.0.1", 0))
        self.port: int = self._server.sockets[0].getsockname()[1]
        self.answered = 0  # bytes of answers that have passed

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    async def _make_condition(self) -> asyncio.Condition:
        return asyncio.Condition()

    def set(self, cut: Cut) -> None:
        """Cut the way, or open it again."""
        self._call(self._set(cut))

    async def _set(self, cut: Cut) -> None:
        async with self._changed:
            self._cut = cut
            self._changed.notify_all()
        if cut is Cut.REFUSED:
            for writer in list(self._writers):
                writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
            self._writers |= {writer, back}
            if self._cut is Cut.REFUSED:  # since then
                writer.transport.abort()
                back.transport.abort()
            await asyncio.gather(
                self._pump(reader, back, (Cut.BOTH, Cut.REQUESTS), lambda _: None),
                self._pump(there, writer, (Cut.BOTH, Cut.ANSWERS), self._note_answer),
            )
            self._writers -= {writer, back}
        except OSError:
            writer.transport.abort()  # the store is down
        finally:
            self._tasks.discard(task)

    async def _pump(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        closed: tuple[Cut, ...],
        note: Callable[[int], object],
    ) -> None:
        try:
            while part := await source.read(_PART):
                if self._cut is Cut.LATE and Cut.ANSWERS in closed:
                    await asyncio.sleep(LATE)
                async with self._changed:
                    await self._changed.wait_for(lambda: self._cut not in closed)
                note(len(part))
                target.write(part)
                await target.drain()
        except OSError:
            pass  # one end has closed the connection
        finally:
            target.close()

    def _note_answer(self, size: int) -> None:
        self.answered += size

    def close(self) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
