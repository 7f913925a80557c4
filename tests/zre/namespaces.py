"""Networks for tests: hosts in network namespaces of the kernel, on segments that are bridges in another one.

Nothing in them reaches a real interface of the machine: a host has its loopback and its ends of virtual cables. The
names of namespaces hold for the whole machine, so they contain the number of the process that made them; the next
process removes those of a killed one.
"""

import contextlib
import functools
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

PATIENCE = 60.0
ROOT = Path(__file__).parents[2]
Line: TypeAlias = dict[str, Any]

_numbers = itertools.count()


class NotPossible(Exception):
    """The kernel, or its security policy, refused."""


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    if done.returncode:
        raise NotPossible(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
    return done.stdout


@functools.cache
def allowed() -> str:
    """Return why namespaces cannot be used here, in one line; empty if they can."""
    if shutil.which("ip") is None:
        return "network namespaces need the program ip (iproute2)"
    try:
        with Network() as network:
            network.host().run("true")
    except NotPossible as error:
        return f"network namespaces are not allowed here: {' '.join(str(error).split())}"
    return ""


class Network:
    """Hosts on segments. Segment number s is the network 10.77.s.0/24; they are not joined unless `routed`."""

    def __init__(self, segments: int = 1, *, routed: bool = False, bridged: bool = True) -> None:
        _remove_leftovers()
        self._name = f"zambezi-{os.getpid()}-{next(_numbers)}"
        self.hub = f"{self._name}-hub"
        self.segments = segments
        self.routed = routed
        self.bridged = bridged
        self.hosts: list[Host] = []
        self.programs: list[Program] = []
        self._namespaces: list[str] = []

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as undo:
            undo.callback(self.remove)
            self.add_namespace(self.hub)
            for segment in range(self.segments) if self.bridged else ():
                run("ip", "-n", self.hub, "link", "add", f"segment{segment}", "type", "bridge", "forward_delay", "0")
                run("ip", "-n", self.hub, "link", "set", f"segment{segment}", "up")
                if self.routed:
                    run("ip", "-n", self.hub, "addr", "add", f"10.77.{segment}.254/24", "dev", f"segment{segment}")
            if self.routed:
                run("ip", "netns", "exec", self.hub, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
            undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            for program in self.programs:
                print(program.account())
        self.remove()

    def host(self, *segments: int) -> "Host":
        """Add a host, with a cable to each of the segments."""
        host = Host(self, f"{self._name}-{len(self.hosts)}", len(self.hosts) + 1, segments or (0,))
        self.hosts.append(host)
        return host

    def add_namespace(self, name: str) -> None:
        run("ip", "netns", "add", name)
        self._namespaces.append(name)
        run("ip", "-n", name, "link", "set", "lo", "up")

    def remove(self) -> None:
        """End every program, and remove every namespace, with its cables."""
        for program in self.programs:
            program.end()
        while self._namespaces:
            run("ip", "netns", "del", self._namespaces.pop())


def _remove_leftovers() -> None:
    for name in names():
        match = re.match(r"zambezi-(\d+)-", name)
        if match and not Path("/proc", match[1]).exists():
            with contextlib.suppress(NotPossible):  # another worker was faster
                run("ip", "netns", "del", name)


def names() -> list[str]:
    return [line.split()[0] for line in run("ip", "netns", "list").splitlines() if line]


class Host:
    """A namespace with an interface eth0, eth1, ... for each of its segments."""

    def __init__(self, network: Network, name: str, number: int, segments: tuple[int, ...]) -> None:
        self.network = network
        self.name = name
        self.segments = segments
        self.addresses = [f"10.77.{segment}.{number}" for segment in segments]
        self._ports = [f"port{number}-{segment}" for segment in segments]
        network.add_namespace(name)
        for index, (segment, port) in enumerate(zip(segments, self._ports, strict=True)):
            interface = f"eth{index}"
            hub = ["ip", "-n", network.hub, "link"]
            run(*hub, "add", port, "type", "veth", "peer", "name", interface, "netns", name)
            if network.bridged:
                run(*hub, "set", port, "master", f"segment{segment}")
            run(*hub, "set", port, "up")
            run("ip", "-n", name, "addr", "add", f"{self.addresses[index]}/24", "brd", "+", "dev", interface)
            run("ip", "-n", name, "link", "set", interface, "up")
        if network.routed:
            run("ip", "-n", name, "route", "add", "default", "via", f"10.77.{segments[0]}.254")

    @property
    def address(self) -> str:
        return self.addresses[0]

    @property
    def ports(self) -> list[str]:
        """Return the hub's ends of the cables."""
        return list(self._ports)

    def run(self, *command: str) -> str:
        return run("ip", "netns", "exec", self.name, *command)

    def unplug(self, index: int = 0) -> None:
        """Pull the cable at the other end: the host keeps its interface and its routes."""
        run("ip", "-n", self.network.hub, "link", "set", self._ports[index], "down")

    def plug(self, index: int = 0) -> None:
        run("ip", "-n", self.network.hub, "link", "set", self._ports[index], "up")

    def switch_off(self, index: int = 0) -> None:
        """Take the interface itself down: the routes through it are gone."""
        run("ip", "-n", self.name, "link", "set", f"eth{index}", "down")

    def switch_on(self, index: int = 0) -> None:
        run("ip", "-n", self.name, "link", "set", f"eth{index}", "up")

    def connections(self, *query: str) -> dict[tuple[str, str], int]:
        """Return the bytes that wait to be sent on each established TCP connection, by its two ends."""
        lines = self.run("ss", "-Htn", "state", "established", *query).splitlines()
        fields = [line.split() for line in lines]
        return {(here, there): int(waiting) for _, waiting, here, there, *_ in fields}

    def reset(self, *query: str) -> bool:
        """Reset TCP connections; return False if the kernel cannot do that. Their owners can have new ones at once."""
        before = self.connections(*query)
        assert before, f"there is no connection {query}"
        self.run("ss", "-HtnK", "state", "established", *query)
        return not before.keys() & self.connections(*query).keys()

    def start(self, module: str, *arguments: str) -> "Program":
        """Start a Python program in this namespace, after the kernel has the interfaces running."""
        deadline = time.monotonic() + PATIENCE
        while any(link["operstate"] == "DOWN" for link in json.loads(run("ip", "-n", self.name, "-j", "link"))):
            assert time.monotonic() < deadline, "an interface does not come up"
            time.sleep(0.002)
        return Program(self.network, self.name, module, *arguments)


class Program:
    """A Python program in a namespace. Each line that it prints or reads is a JSON object."""

    def __init__(self, network: Network, namespace: str, module: str, *arguments: str) -> None:
        self._title = f"{namespace} {module} {' '.join(arguments)}"
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  # closed by end()
        self._process = subprocess.Popen(
            ["ip", "netns", "exec", namespace, sys.executable, "-W", "error", "-m", module, *arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self.lines: list[Line] = []
        self._changed = threading.Condition()
        self._over = False
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        network.programs.append(self)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                self.lines.append(json.loads(line))
                self._changed.notify_all()
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def tell(self, *command: object) -> None:
        """Write a line for the program to read."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def wait_until(self, condition: Callable[[list[Line]], Any], what: object = "") -> Any:
        """Wait until the program's lines fulfil a condition; return the result of the condition."""
        deadline = time.monotonic() + PATIENCE
        with self._changed:
            while not (result := condition(self.lines)):
                left = deadline - time.monotonic()
                if self._over or left <= 0:
                    how = "ended" if self._over else "was silent"
                    raise AssertionError(f"the program {how}; waited for {what}\n{self.account()}")
                self._changed.wait(left)
        return result

    def wait_for(self, event: str, count: int = 1, **fields: object) -> Line:
        """Wait for the line number `count` of an event with these fields, and return it."""
        return next(itertools.islice(self._matches(event, count, fields), count - 1, None))

    def _matches(self, event: str, count: int, fields: dict[str, object]) -> Iterator[Line]:
        wanted = {"event": event, **fields}

        def found(lines: list[Line]) -> list[Line]:
            matches = [line for line in lines if wanted.items() <= line.items()]
            return matches if len(matches) >= count else []

        return iter(self.wait_until(found, f"{wanted}, {count} times"))

    def errors(self) -> str:
        """Return what the program wrote to its standard error."""
        self._errors.seek(0)
        return self._errors.read()

    def account(self) -> str:
        """Return what is known of the program, for the message of a failed test."""
        lines = "\n".join(str(line) for line in self.lines[-100:])
        return f"--- {self._title}\n{lines}\n{'' if self._errors.closed else self.errors()}"

    def kill(self) -> None:
        """Kill the program: it cannot say goodbye."""
        self._process.kill()
        self._process.wait(PATIENCE)

    def close_input(self) -> None:
        """Close the program's input, so that it ends."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def finish(self) -> str:
        """Wait until the program ends; return what it wrote to its standard error."""
        self._process.wait(PATIENCE)
        return self.errors()

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        with contextlib.suppress(BrokenPipeError):
            self._process.__exit__(None, None, None)
        self._errors.close()
