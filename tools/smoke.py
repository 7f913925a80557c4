"""A short trial of an installed Zambezi: of its core, or of an extra.

    python -m tools.smoke core

`make dist` runs this file in an empty environment that has only the wheel.
"""

import asyncio
import importlib.metadata
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from zambezi.errors import ZambeziError
from zambezi.p2p import PeerSocket
from zambezi.zeps import Broker
from zambezi.zeps.asyncio import Client
from zambezi.zre import MemoryNetwork, Node

PATIENCE = 300.0  # seconds


async def publish(data: str) -> None:
    """Publish a message to a broker, and read it again."""
    async with Broker(data) as broker, Client.connect(broker.bind("tcp://127.0.0.1:*")) as client:
        stream = client.stream("s")
        await stream.publish("k", b"hello")
        await stream.flush(timeout=PATIENCE)
        async with stream.subscribe(since="earliest") as subscription:
            assert (await subscription.recv(timeout=PATIENCE)).body == b"hello"


def core() -> None:
    """A stream, a mesh, a PEER socket and the command line work without any extra."""
    with tempfile.TemporaryDirectory() as place:
        asyncio.run(publish(place))
    network = MemoryNetwork()
    with Node("a", network=network) as node, Node("b", network=network):
        found: Any = node.recv(timeout=PATIENCE)
        assert found.name == "b"
    with PeerSocket() as socket:
        assert socket.bind("tcp://127.0.0.1:*").startswith("tcp://127.0.0.1:")
    assert zambezi("--version") == f"zambezi {importlib.metadata.version('zambezi')}\n"


def zambezi(*words: str) -> str:
    """Return the output of the command."""
    command = [sys.executable, "-m", "zambezi", *words]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def console() -> None:
    """A server shows its console: the page and its parts are in the wheel, and so are the metrics."""
    with tempfile.TemporaryDirectory() as place:
        config = Path(place) / "zambezi.toml"
        config.write_text(
            f'[server]\ndata = "{place}/data"\n[zeps]\nendpoint = "tcp://127.0.0.1:*"\n[console]\nport = 0\n'
        )
        command = [sys.executable, "-m", "zambezi", "serve", "--config", str(config), "--data", f"{place}/data"]
        only = ["--only", "zeps", "--only", "console"]
        with subprocess.Popen([*command, *only], stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                url = next(line.split()[-1] for line in server.stdout if line.startswith("console at "))
                for path, content in (
                    ("", "<title>"),
                    ("static/console.js", "import"),
                    ("metrics", "zambezi_build_info"),
                ):
                    with urlopen(url + path, timeout=PATIENCE) as answer:
                        assert content in answer.read().decode(), f"{url}{path} has no {content}"
            finally:
                server.terminate()


def store() -> None:
    """A stream can be copied into an object store."""
    with tempfile.TemporaryDirectory() as place:
        asyncio.run(publish(f"{place}/data"))
        zambezi("store", "copy", f"{place}/store", "--data", f"{place}/data")
        assert '"s"' in zambezi("store", "list", f"{place}/store", "--json")


def otel() -> None:
    """A message has a traceparent; the SDK is the program's own choice."""
    message = import_module("zambezi.zeps").Message(1, "k", b"hello", "s")
    assert import_module("zambezi.zeps.tracing").Tracing().traceparent_of(message).startswith("00-")


def spark() -> None:
    """The source and the pipelines can be imported, and Spark counts the messages of a stream if Java is there."""
    import_module("pyspark_zeps")
    assert import_module("zambezi.spark.pipelines").PIPELINES
    java = import_module("zambezi.spark.java")
    try:
        java.find_java()
    except ZambeziError as missing:
        print(f"spark: no query was tried: {missing}")
        return
    with tempfile.TemporaryDirectory() as place:
        asyncio.run(publish(f"{place}/data"))
        counted = zambezi("sql", "-e", "select count(*) as count from s", "--path", f"{place}/data", "--json")
        assert '"count": 1' in counted.replace('":1', '": 1'), counted


def connect() -> None:
    """A client of Spark Connect has its packages."""
    for name in ("pandas", "grpc", "pyspark.sql.connect.session"):
        import_module(name)


PARTS: Mapping[str, Callable[[], None]] = {
    "core": core,
    "console": console,
    "store": store,
    "otel": otel,
    "spark": spark,
    "connect": connect,
}

if __name__ == "__main__":
    PARTS[sys.argv[1]]()
    print(f"{sys.argv[1]}: works")
