"""A member of a mesh, as tests see it: a node of ours, or of others, in a program of its own.

Run as a program, it is a node of ours. Its arguments are the face, and the options as JSON; it reads commands and
writes events, one in each line.
"""

import asyncio
import inspect
import itertools
import json
import sys
import threading
import time
from dataclasses import asdict
from typing import Any
from uuid import UUID

import zambezi.zre.asyncio as aio
from tests.zre.namespaces import Host, Line, Program
from zambezi.errors import ZambeziError
from zambezi.zmtp.keys import KeyPair
from zambezi.zre import Event, sync

# Short, so that tests are; and long enough for a machine that is busy with others.
SHORT: dict[str, object] = {"interval": 0.2, "evasive": 2.5, "expired": 7.5}
CHANGES = ("Enter", "Exit")

_faces = itertools.cycle(["sync", "asyncio"])


class Member:
    """A node in a namespace. Each line that it writes is an event: its name and its fields."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.wait_for = program.wait_for
        started = program.wait_for("Started")
        self.uuid: str = started["peer"]
        self.name: str = started["name"]
        self.endpoint: str = started["endpoint"]

    @classmethod
    def ours(cls, host: Host, name: str, **options: object) -> "Member":
        """Start a node of ours. `keys` is the seed of its key pair, a number."""
        return cls.all_ours((host, name, options))[0]

    @classmethod
    def all_ours(cls, *starts: tuple[Host, str, dict[str, object]]) -> "list[Member]":
        """Start several nodes at once, because a program takes long to start; blocking and asyncio's in turn."""
        programs = [
            host.start("tests.zre.member", next(_faces), json.dumps({**SHORT, "name": name, **options}))
            for host, name, options in starts
        ]
        return [cls(program) for program in programs]

    def join(self, group: str) -> None:
        self.program.tell("join", group)

    def leave(self, group: str) -> None:
        self.program.tell("leave", group)

    def whisper(self, peer: "Member", *content: str) -> None:
        self.program.tell("whisper", peer.uuid, *content)

    def shout(self, group: str, *content: str) -> None:
        self.program.tell("shout", group, *content)

    def ask(self, question: str) -> Any:
        """Return the answer to `counters`, or to `known`: the peers that it knows, ready or not."""
        asked = sum(1 for line in self.program.lines if line["event"] == question)
        self.program.tell(question)
        return self.wait_for(question, asked + 1)["answer"]

    def meet(self, *others: "Member") -> None:
        """Wait until others have entered."""
        for other in others:
            self.wait_for("Enter", peer=other.uuid)

    def story_of(self, other: "Member", *kinds: str) -> list[str]:
        """Return the events about another member so far: Enter and Exit, or the given ones."""
        return [line["event"] for line in self.heard_of(other) if line["event"] in (kinds or CHANGES)]

    def heard_of(self, other: "Member") -> list[Line]:
        return [line for line in list(self.program.lines) if line.get("peer") == other.uuid]

    def whispers_of(self, other: "Member") -> list[list[str]]:
        return [line["content"] for line in self.heard_of(other) if line["event"] == "Whisper"]

    def whispers(self, peer: "Member", word: str) -> bool:
        """Whisper to another member, which can come and go, until it has received a whisper."""
        if [word] in peer.whispers_of(self):
            return True
        self.whisper(peer, word)
        time.sleep(0.05)
        return False

    def stop(self) -> str:
        """Stop with a goodbye; return what the program wrote to its standard error."""
        self.program.close_input()
        return self.program.finish()

    def kill(self) -> None:
        self.program.kill()


def converse(*members: Member, word: str = "hello") -> None:
    """Let every member whisper to every other, and wait until all whispers have come."""
    for member in members:
        for other in members:
            if other is not member:
                member.whisper(other, word)
    for member in members:
        for other in members:
            if other is not member:
                member.wait_for("Whisper", peer=other.uuid, content=[word])


def stop(*members: Member) -> None:
    """Stop all members at once, and check that none of them wrote an error."""
    for member in members:
        member.program.close_input()
    for member in members:
        problem = member.stop()
        assert problem == "", problem


# The program


def tell(event: str, **fields: object) -> None:
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


def _plain(value: object) -> object:
    match value:
        case UUID():
            return value.hex
        case bytes():
            return value.decode("latin-1")
        case tuple():
            return [_plain(item) for item in value]
        case _:
            return value


def _hear(event: Event) -> None:
    tell(type(event).__name__, **{name: _plain(value) for name, value in asdict(event).items()})


def _obey(node: sync.Node | aio.Node, command: str, *arguments: str) -> object:
    """Carry out the command in a line. For a node of asyncio, return a coroutine to await."""
    content = [argument.encode("latin-1") for argument in arguments[1:]]
    match command:
        case "join":
            return node.join(arguments[0])
        case "leave":
            return node.leave(arguments[0])
        case "whisper":
            return node.whisper(UUID(arguments[0]), content)
        case "shout":
            return node.shout(arguments[0], content)
        case "counters":
            tell(command, answer=asdict(node.counters))
        case "known":
            tell(command, answer=[key.hex() for key in list(node._shell.engine.peers)])
        case _:
            raise ValueError(command)
    return None


def _started(node: sync.Node | aio.Node) -> None:
    tell("Started", peer=node.uuid.hex, name=node.name, endpoint=node.endpoint)


def block(options: dict[str, Any]) -> None:
    def listen() -> None:
        for event in node:
            _hear(event)

    with sync.Node(**options) as node:
        _started(node)
        ears = threading.Thread(target=listen)
        ears.start()
        for line in sys.stdin:
            try:
                _obey(node, *json.loads(line))
            except ZambeziError as error:
                tell("Error", kind=type(error).__name__)
    ears.join()


async def loop(options: dict[str, Any]) -> None:
    async def listen() -> None:
        async for event in node:
            _hear(event)

    lines = asyncio.StreamReader(limit=1 << 20)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(lines), sys.stdin
    )
    async with aio.Node(**options) as node:
        _started(node)
        ears = asyncio.create_task(listen())
        async for line in lines:
            try:
                result = _obey(node, *json.loads(line))
                if inspect.isawaitable(result):
                    await result
            except ZambeziError as error:
                tell("Error", kind=type(error).__name__)
    await ears
    transport.close()


def main() -> None:
    face, options = sys.argv[1], json.loads(sys.argv[2])
    if "uuid" in options:
        options["uuid"] = UUID(options["uuid"])
    if "keys" in options:
        options["keys"] = KeyPair.generate(seed=bytes([options["keys"]]) * 32)
    if face == "sync":
        block(options)
    else:
        asyncio.run(loop(options))


if __name__ == "__main__":
    main()
