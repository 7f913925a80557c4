"""zambezi.zre.tuples: hubs and clients of zgossip, without sockets: what links are told, and what they cannot do."""

from uuid import UUID

import pytest

from zambezi.zmtp import z85
from zambezi.zre import zgossip
from zambezi.zre.counters import Counters
from zambezi.zre.tuples import PING, CutOff, Found, Link, Output, Send, Tuples

US, ANN, BOB, EVE = (UUID(int=number) for number in (1, 2, 3, 4))
OWN = "tcp://10.0.0.1:1"
GRACE = 30.0
HELLO, PONG, INVALID = (kind().encode()[0] for kind in (zgossip.Hello, zgossip.Pong, zgossip.Invalid))


class Stage:
    """A table with a clock, and the peers of its node."""

    def __init__(self, most: int = 100) -> None:
        self.peers: set[UUID] = set()
        self.counters = Counters()
        self.tuples = Tuples(US, self.counters, most=most, grace=GRACE, is_peer=self.peers.__contains__)
        self.now = 100.0

    def client(self, name: str, greets: bool = True) -> str:
        self.tuples.attached(name, self.now, is_hub=False)
        if greets:
            self.say(name, zgossip.Hello())
        return name

    def hub(self, name: str) -> str:
        self.tuples.attached(name, self.now, is_hub=True)
        return name

    def say(self, link: Link, message: zgossip.Zgossip) -> None:
        self.tuples.receive(link, list(message.encode()), self.now)

    def tell(self, link: Link, uuid: UUID, contact: str, ttl: int = 0) -> None:
        self.say(link, zgossip.Publish(zgossip.key_of(uuid), contact, ttl))

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while self.tuples.deadline <= end:
            self.now = self.tuples.deadline
            self.tuples.tick(self.now)
        self.now = end

    def sent(self, link: Link) -> list[zgossip.Zgossip]:
        """Return the messages to a link since the last call, and forget those to others."""
        outputs = [one for one in self.tuples.take() if isinstance(one, Send) and one.link == link]
        return [zgossip.Zgossip.decode(one.octets) for one in outputs]

    def known(self) -> dict[UUID, str]:
        return dict(self.tuples)


def publish(uuid: UUID, contact: str, ttl: int = 0) -> zgossip.Publish:
    return zgossip.Publish(zgossip.key_of(uuid), contact, ttl)


@pytest.fixture
def stage() -> Stage:
    made = Stage()
    made.tuples.publish(OWN, made.now)
    return made


# A client of hubs


def test_a_hub_is_greeted_and_told_all_that_we_know(stage: Stage) -> None:
    ann = stage.client("ann")
    stage.tell(ann, ANN, "tcp://10.0.0.2:2")
    stage.tuples.take()
    hub = stage.hub("hub")
    assert stage.sent(hub) == [zgossip.Hello(), publish(US, OWN), publish(ANN, "tcp://10.0.0.2:2")]


def test_a_hub_that_tells_of_nodes_finds_them_and_clients_are_told(stage: Stage) -> None:
    hub, client = stage.hub("hub"), stage.client("client")
    stage.tuples.take()
    stage.tell(hub, ANN, "tcp://10.0.0.2:2")
    outputs = stage.tuples.take()
    assert outputs == [
        Send(client, publish(ANN, "tcp://10.0.0.2:2").encode()[0]),
        Found(hub, ANN, "tcp://10.0.0.2:2"),
    ]


def test_a_hub_of_zyre_forgets_a_client_that_is_silent_for_a_second_so_ours_is_not(stage: Stage) -> None:
    hub = stage.hub("hub")
    stage.tuples.take()
    stage.advance(3)
    pings = stage.sent(hub)
    assert set(pings) == {zgossip.Ping()}
    assert len(pings) >= 3 / PING - 1
    stage.say(hub, zgossip.Pong())
    stage.tuples.lost(hub, stage.now)
    assert stage.tuples.deadline > stage.now + PING


def test_a_hub_that_forgot_us_is_greeted_and_told_again_but_not_without_end(stage: Stage) -> None:
    hub = stage.hub("hub")
    stage.advance(2)
    stage.tuples.take()
    stage.say(hub, zgossip.Invalid())
    assert stage.sent(hub) == [zgossip.Hello(), publish(US, OWN)]
    for _ in range(100):
        stage.say(hub, zgossip.Invalid())
    assert stage.sent(hub) == []
    stage.advance(2)
    assert stage.sent(hub).count(zgossip.Hello()) == 1


# A hub


def test_a_client_that_says_hello_is_told_all_tuples_and_later_all_news(stage: Stage) -> None:
    ann, bob = stage.client("ann"), stage.client("bob")
    assert stage.sent(bob) == [publish(US, OWN)]
    stage.tell(ann, ANN, "tcp://10.0.0.2:2")
    stage.tell(bob, BOB, "tcp://10.0.0.3:3")
    outputs = stage.tuples.take()
    assert Send(bob, publish(ANN, "tcp://10.0.0.2:2").encode()[0]) in outputs
    assert Send(ann, publish(BOB, "tcp://10.0.0.3:3").encode()[0]) in outputs
    assert sum(isinstance(one, Send) for one in outputs) == 2  # and no link is told what it told
    assert stage.known() == {US: OWN, ANN: "tcp://10.0.0.2:2", BOB: "tcp://10.0.0.3:3"}


def test_a_client_must_say_hello_first(stage: Stage) -> None:
    ann = stage.client("ann", greets=False)
    stage.tell(ann, ANN, "tcp://10.0.0.2:2")
    assert stage.sent(ann) == [zgossip.Invalid()]
    stage.say(ann, zgossip.Ping())
    assert stage.sent(ann) == [zgossip.Pong()]
    assert stage.known() == {US: OWN}
    stage.say(ann, zgossip.Hello())
    assert stage.sent(ann) == [publish(US, OWN)]
    for wrong in (zgossip.Hello(), zgossip.Pong(), zgossip.Invalid()):
        stage.say(ann, wrong)
        assert stage.sent(ann) == [zgossip.Invalid()]


def test_a_client_that_is_silent_stays_because_clients_of_zyre_send_no_pings(stage: Stage) -> None:
    ann, bob = stage.client("ann"), stage.client("bob")
    stage.advance(3600)
    stage.tell(bob, BOB, "tcp://10.0.0.3:3")
    assert publish(BOB, "tcp://10.0.0.3:3") in stage.sent(ann)


def test_a_tuple_that_is_told_twice_is_passed_on_once_and_found_twice(stage: Stage) -> None:
    ann, bob = stage.client("ann"), stage.client("bob")
    stage.tell(ann, ANN, "tcp://10.0.0.2:2")
    stage.tuples.take()
    stage.tell(bob, ANN, "tcp://10.0.0.2:2")
    assert stage.tuples.take() == [Found(bob, ANN, "tcp://10.0.0.2:2")]


def test_our_own_contact_is_told_again_when_it_changes(stage: Stage) -> None:
    hub, ann = stage.hub("hub"), stage.client("ann")
    stage.tuples.take()
    stage.tuples.publish(OWN, stage.now)
    assert stage.tuples.take() == []
    stage.tuples.publish("tcp://10.0.0.9:9", stage.now)
    news = publish(US, "tcp://10.0.0.9:9").encode()[0]
    assert stage.tuples.take() == [Send(hub, news), Send(ann, news)]


# How long tuples stay


def test_a_tuple_stays_for_the_grace_after_its_link_is_lost(stage: Stage) -> None:
    ann = stage.client("ann")
    stage.tell(ann, ANN, "tcp://10.0.0.2:2")
    stage.advance(1000)
    stage.tuples.lost(ann, stage.now)
    stage.advance(GRACE - 1)
    again = stage.client("again")
    (own, told) = stage.sent(again)
    assert (own, told) == (publish(US, OWN), publish(ANN, "tcp://10.0.0.2:2", 1000))  # it may be gone in a second
    stage.advance(2)
    assert stage.known() == {US: OWN}


def test_a_tuple_stays_if_its_node_comes_back_or_is_our_peer(stage: Stage) -> None:
    for name, uuid in (("ann", ANN), ("bob", BOB)):
        stage.tell(stage.client(name), uuid, f"tcp://10.0.0.2:{uuid.int}")
        stage.tuples.lost(name, stage.now)
    stage.tell(stage.client("again"), ANN, "tcp://10.0.0.2:2")
    stage.peers.add(BOB)
    stage.advance(1000)
    assert set(stage.known()) == {US, ANN, BOB}
    stage.peers.discard(BOB)
    stage.tuples.ended(BOB, stage.now)
    stage.advance(GRACE / 2)
    stage.tuples.entered(BOB)  # it began a new session
    stage.advance(GRACE)
    assert BOB in stage.known()
    stage.tuples.ended(BOB, stage.now)
    stage.advance(GRACE + 1)
    assert set(stage.known()) == {US, ANN}


def test_a_tuple_with_a_time_to_live_ends_with_it(stage: Stage) -> None:
    ann, bob = stage.client("ann"), stage.client("bob")
    stage.tuples.take()
    stage.tell(ann, ANN, "tcp://10.0.0.2:2", 5000)
    assert stage.sent(bob) == [publish(ANN, "tcp://10.0.0.2:2", 5000)]
    stage.advance(4)
    stage.tell(ann, ANN, "tcp://10.0.0.2:2", 5000)
    stage.advance(4)
    assert ANN in stage.known()
    stage.advance(2)
    assert ANN not in stage.known()


def test_a_node_that_starts_again_with_a_new_uuid_takes_the_place_of_its_old_tuple(stage: Stage) -> None:
    ann = stage.client("ann")
    stage.tell(ann, ANN, "tcp://10.0.0.2:2")
    stage.tuples.lost(ann, stage.now)
    stage.tell(stage.client("again"), BOB, "tcp://10.0.0.2:2")
    assert set(stage.known()) == {US, BOB}


# What strangers cannot do


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("service1", "tcp://10.0.0.2:2"),
        (zgossip.key_of(ANN), ""),
        (zgossip.key_of(ANN), "nonsense"),
        (zgossip.key_of(ANN), "tcp://10.0.0.2:2|short"),
        (zgossip.key_of(ANN), "tcp://10.0.0.2:2\n"),
        (zgossip.key_of(ANN), "tcp://" + "a" * 600),
    ],
)
def test_only_tuples_of_nodes_are_kept(stage: Stage, key: str, value: str) -> None:
    ann = stage.client("ann")
    stage.say(ann, zgossip.Publish(key, value))
    assert stage.known() == {US: OWN}
    assert stage.counters.bad_tuples == 1


def test_a_contact_can_have_a_key(stage: Stage) -> None:
    contact = f"tcp://10.0.0.2:2|{z85.encode(bytes(32))}"
    stage.tell(stage.client("ann"), ANN, contact)
    assert stage.known()[ANN] == contact


@pytest.mark.parametrize(
    "frames",
    [[b""], [b"\xaa\xa1\x01\x01"], [b"\xaa\xa0\x02\x01\xff"], [b"\xaa\xa0\x63\x01"], [HELLO, HELLO]],
)
def test_a_link_that_says_what_is_not_zgossip_is_cut_off_once(stage: Stage, frames: list[bytes]) -> None:
    ann, hub = stage.client("ann"), stage.hub("hub")
    stage.tuples.take()
    for link in (ann, hub, "unknown"):
        for _ in range(100):
            stage.tuples.receive(link, frames, stage.now)
        stage.tell(link, ANN, "tcp://10.0.0.2:2")
    outputs = stage.tuples.take()
    assert cut_off(outputs) == [ann, hub]
    assert len(outputs) == 2
    assert stage.counters.bad_tuples == 2
    assert stage.known() == {US: OWN}


def test_a_link_that_says_too_much_is_cut_off_once(stage: Stage) -> None:
    ann, bob = stage.client("ann"), stage.client("bob")
    for number in range(3000):
        stage.say(ann, zgossip.Ping())
        if number % 10 == 0:
            stage.say(bob, zgossip.Ping())
    outputs = stage.tuples.take()
    assert cut_off(outputs) == [ann]
    assert sum(one == Send(ann, PONG) for one in outputs) < 1000


def test_no_link_changes_the_tuple_of_another_or_ours(stage: Stage) -> None:
    ann, eve = stage.client("ann"), stage.client("eve")
    stage.tell(ann, ANN, "tcp://10.0.0.2:2")
    stage.tuples.take()
    stage.tell(eve, ANN, "tcp://10.6.6.6:6")
    stage.tell(eve, US, "tcp://10.6.6.6:6")
    assert stage.tuples.take() == []
    assert stage.known() == {US: OWN, ANN: "tcp://10.0.0.2:2"}
    assert stage.counters.refused_tuples == 1
    stage.tell(eve, EVE, "tcp://10.0.0.2:2")  # nor does a claim of its mailbox displace it
    assert ANN in stage.known()
    stage.tell(ann, ANN, "tcp://10.0.0.5:5")  # it moved
    assert stage.known()[ANN] == "tcp://10.0.0.5:5"


def test_the_table_is_bounded_and_peers_keep_their_place() -> None:
    stage = Stage(most=10)
    stage.tuples.publish(OWN, stage.now)
    ann, eve = stage.client("ann"), stage.client("eve")
    stage.peers.add(ANN)
    stage.tell(ann, ANN, "tcp://10.0.0.2:2")
    for number in range(100, 118):
        stage.tell(eve, UUID(int=number), f"tcp://10.6.6.6:{number}")
    assert len(stage.tuples) == 10
    assert {US, ANN, UUID(int=117)} <= set(stage.known())


def test_a_table_full_of_peers_refuses_newcomers() -> None:
    stage = Stage(most=4)
    stage.tuples.publish(OWN, stage.now)
    ann = stage.client("ann")
    for number in range(100, 104):
        stage.peers.add(UUID(int=number))
        stage.tell(ann, UUID(int=number), f"tcp://10.0.0.2:{number}")
    assert len(stage.tuples) == 4
    assert stage.counters.refused_tuples == 1


def cut_off(outputs: list[Output]) -> list[Link]:
    return [one.link for one in outputs if isinstance(one, CutOff)]


def test_a_link_that_tells_ever_new_tuples_is_cut_off() -> None:
    stage = Stage(most=10)
    ann, eve = stage.client("ann"), stage.client("eve")
    for number in range(100, 200):
        stage.tell(eve, UUID(int=number), f"tcp://10.6.6.6:{number}")
    stage.tell(ann, ANN, "tcp://10.0.0.2:2")
    assert cut_off(stage.tuples.take()) == [eve]
    for _ in range(3):
        for number in range(18):  # it tells all that it knows whenever it connects
            stage.tell(ann, UUID(int=300 + number), f"tcp://10.0.0.3:{number}")
        stage.advance(GRACE)
    assert cut_off(stage.tuples.take()) == []


def test_a_client_that_asks_for_all_tuples_again_and_again_is_cut_off(stage: Stage) -> None:
    ann = stage.client("ann")
    stage.say(ann, zgossip.Hello())  # INVALID, as Zyre answers
    stage.advance(1)
    stage.say(ann, zgossip.Hello())
    assert cut_off(stage.tuples.take()) == []
    for _ in range(10):
        stage.say(ann, zgossip.Hello())
    assert cut_off(stage.tuples.take()) == [ann]
