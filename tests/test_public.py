"""The public names of the classes that users meet. A name that is added or removed is a decision: change it here."""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path

import pytest

from tests.zmtp.waiting import in_loop
from zambezi import Broker

SOCKET = "bind close closed connect counters disconnect events next_event recv unbind"
BATCHES = f"{SOCKET} recv_batch send send_batch"
FACES = {
    "zambezi.p2p.sync.PeerSocket": f"{SOCKET} peers send",
    "zambezi.zeps.sync.Client": (
        "brokers clients close closed connect copy create delete edit index last readers remove_reader set_reader "
        "stream streams trim truncate"
    ),
    "zambezi.zeps.sync.Stream": (
        "close counters flush publish publish_many publish_nowait request resumed serve subscribe unconfirmed"
    ),
    "zambezi.zeps.sync.Subscription": "ack batches close counters flush keep nack position ready recv recv_batch",
    "zambezi.zeps.mirror.sync.Mirror": "close counters lag position refused run waits_for",
    "zambezi.zeps.requests.sync.Serving": "close ready recv",
    "zambezi.zeps.requests.sync.Request": "body fail key reply sequence stream",
    "zambezi.zre.sync.Node": (
        "add_seed announce counters describe endpoint fileno forget gossip_endpoint groups headers is_encrypted join "
        "leader leave missing_hubs missing_seeds name peer peer_groups peers peers_in queues recv require_peer "
        "services set_header set_name set_timeouts set_trace shout start stop strangers unsent uuid whisper"
    ),
    "zambezi.mcollective.sync.Fleet": "call ping",
    "zambezi.mcollective.sync.Connector": (
        "bind close closed connect connected counters events messages missed next_event put recv request subscribe "
        "subscriptions unbind unsubscribe"
    ),
    "zambezi.mcollective.sync.Middleware": (
        "bind clients close closed counters events next_event queues replace_rules topic_count topics unbind"
    ),
    "zambezi.zmtp.sync.Dealer": BATCHES,
    "zambezi.zmtp.sync.Router": f"{BATCHES} send_to",
    "zambezi.zmtp.sync.Pub": BATCHES,
    "zambezi.zmtp.sync.Sub": f"{BATCHES} subscribe unsubscribe",
}
OTHERS = {
    "zambezi.zeps.Broker": "bind close counters problems set_policies",
    "zambezi.zeps.Message": "body count deliveries index key sequence stream time",
    "zambezi.zeps.MessageBatch": ("bodies count first frames index keys last octets raw_keys sequences stream times"),
    "zambezi.zeps.tracing.Tracing": "context_of note_published note_received traceparent_of wrap_post",
    "zambezi.mcollective.AgentHost": "agents close serve start",
    "zambezi.server.Server": "local_zeps problems reload sessions",
}


def find(path: str) -> type:
    module, _, name = path.rpartition(".")
    found: type = getattr(import_module(module), name)
    return found


def public(kind: type) -> list[str]:
    return sorted(name for name in dir(kind) if not name.startswith("_"))


@pytest.mark.parametrize("path", [*FACES, *OTHERS])
def test_a_class_has_these_public_names(path: str) -> None:
    kind = find(path)
    assert public(kind) == sorted((FACES | OTHERS)[path].split())
    named = {name: getattr(kind, name) for name in public(kind)}
    undocumented = [
        name for name, one in named.items() if (callable(one) or isinstance(one, property)) and not one.__doc__
    ]
    assert not undocumented


@pytest.mark.parametrize("path", FACES)
def test_both_faces_have_the_same_names(path: str) -> None:
    twin = find(path.replace(".sync.", ".asyncio."))
    assert set(public(find(path))) ^ set(public(twin)) <= {"fileno"}


@in_loop
async def test_a_broker_shows_nothing_of_its_inside(tmp_path: Path) -> None:
    async with Broker(tmp_path) as broker:
        assert [name for name in vars(broker) if not name.startswith("_")] == []


def test_the_help_of_broker_and_client_has_all_their_options() -> None:
    for options, text in (
        (inspect.signature(Broker).parameters.keys() - {"path"}, inspect.getdoc(Broker)),
        (find("zambezi.zeps.client.arguments.ClientArguments").__annotations__, inspect.getdoc(find("zambezi.Client"))),
    ):
        assert text is not None
        lines = [line.strip() for line in text.splitlines()]
        missing = [option for option in options if not any(line.startswith(f"{option} ") for line in lines)]
        assert not missing
