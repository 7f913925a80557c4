"""A server with a group: its configuration, announcement, counters and display. The network is in memory."""

import dataclasses
import io
from pathlib import Path

import pytest
from rich.console import Console

from tests.server.test_server import config_for
from tests.zeps.multicast.ether import Ether, ether
from tests.zmtp.waiting import eventually, in_loop
from zambezi.cli.stream_tables import stream_table
from zambezi.console.metrics import exposition
from zambezi.server import Config, Server
from zambezi.server.config import JournalConfig
from zambezi.zeps.asyncio import Client
from zambezi.zeps.directory import StreamInfo
from zambezi.zeps.errors import GroupError
from zambezi.zeps.multicast.datagram import MAGIC, SEALED
from zambezi.zmtp.keys import KeyPair, write_pair

__all__ = ["ether"]


def with_group(path: Path, keys: str = "") -> Config:
    config = config_for(
        path, streams={"a b": JournalConfig(multicast="udp://239.77.1.1:5680?ttl=2"), "c": JournalConfig()}
    )
    return dataclasses.replace(config, server=dataclasses.replace(config.server, keys=keys))


@pytest.mark.spec("ZEP-16")
@in_loop
async def test_a_configured_group_is_sent_to_counted_and_shown(ether: Ether, tmp_path: Path) -> None:
    async with Server(with_group(tmp_path)) as server, Client.connect(server.endpoints["zeps"]) as client:
        stream = client.stream("a b")
        await stream.publish_many([("k", b"x")] * 10)
        await stream.flush()
        told = {info.stream: info for info in await client.streams()}
        assert told["a b"].multicast == "udp://239.77.1.1:5680"
        assert told["a b"].feed["messages"] == 10
        assert told["c"].multicast == ""
        metrics = exposition(server).decode()
        assert 'zambezi_multicast_total{stream="a b",what="messages"} 10.0' in metrics
        assert 'zambezi_multicast_total{stream="c"' not in metrics


@in_loop
async def test_a_stream_that_is_cut_or_created_again_is_still_sent_to_its_group(ether: Ether, tmp_path: Path) -> None:
    async with Server(with_group(tmp_path)) as server, Client.connect(server.endpoints["zeps"]) as client:

        async def sent() -> dict[str, str]:
            async with Client.connect(server.endpoints["zeps"]) as other:
                await other.stream("a b").publish_many([("k", b"x")] * 5)
                await other.stream("a b").flush()
            (info,) = [one for one in await client.streams() if one.stream == "a b"]
            assert info.feed["messages"] == 5
            return {"multicast": info.multicast, "incarnation": info.incarnation}

        first = await sent()
        await client.truncate("a b", 2)
        second = await sent()
        await client.delete("a b")
        assert server.broker is not None
        assert server.broker.groups == {}
        third = await sent()
        assert {one["multicast"] for one in (first, second, third)} == {"udp://239.77.1.1:5680"}
        assert len({one["incarnation"] for one in (first, second, third)}) == 3


@in_loop
async def test_the_mesh_learns_of_the_groups(ether: Ether, tmp_path: Path) -> None:
    config = with_group(tmp_path)
    config = dataclasses.replace(config, zre=dataclasses.replace(config.zre, enabled=True, beacon_port=0))
    async with Server(config) as server:
        assert server.node is not None
        headers = server.node._shell.engine.profile.headers
        assert headers["X-ZEPS-MULTICAST"] == "a%20b=udp://239.77.1.1:5680"


@pytest.mark.spec("ZEP-16")
@in_loop
async def test_with_keys_a_group_needs_one_of_its_own(ether: Ether, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    write_pair(keys, "server", KeyPair.generate())
    (keys / "allowed").mkdir()
    config = with_group(tmp_path, keys=str(keys))
    with pytest.raises(GroupError, match="would carry it in clear"):
        await Server(config).__aenter__()
    assert ether.sent == []
    write_pair(keys, "group", KeyPair.generate())
    async with Server(config):
        await eventually(lambda: ether.sent)
    assert all(datagram.startswith(MAGIC + SEALED) for datagram in ether.sent)


def test_the_table_of_streams_has_columns_for_groups_where_there_are_any() -> None:
    def shown(*streams: StreamInfo) -> str:
        text = io.StringIO()
        Console(width=200, file=text).print(stream_table(streams))
        return text.getvalue()

    plain = StreamInfo(stream="plain")
    group = StreamInfo(
        stream="s", multicast="udp://239.77.1.1:5680", sealed=True, feed={"messages": 12345, "withheld": 67}
    )
    assert "group" not in shown(plain)
    text = shown(plain, group)
    assert "udp://239.77.1.1:5680 (sealed)" in text
    assert "12,345" in text
    assert "67" in text
