"""zambezi.zmtp.authenticator: rules about addresses, keys and users, and their changes."""

import hmac
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zambezi.errors import ZambeziError
from zambezi.zmtp.authenticator import AddressRuleError, Authenticator, Claim, Verdict
from zambezi.zmtp.keyring import Keyring
from zambezi.zmtp.keys import InvalidKeyError, KeyPair

if TYPE_CHECKING:
    from collections.abc import Callable

ALICE, BOB = (KeyPair.generate(seed=bytes([number]) * 32) for number in (1, 2))
HERE = "192.0.2.1"


def plain(username: str, password: str, address: str = HERE) -> Claim:
    return Claim("PLAIN", address, username=username, password=password)


def curve(key: bytes, address: str = HERE) -> Claim:
    return Claim("CURVE", address, key=key)


def allow(directory: Path, name: str, pair: KeyPair) -> Path:
    path = directory / name
    path.write_text(pair.public_z85)
    return path


# Mechanisms


def test_without_rules_null_is_allowed_and_has_no_user() -> None:
    verdict = Authenticator().judge(Claim("NULL", HERE))
    assert verdict.allowed
    assert verdict.user == ""


@pytest.mark.parametrize("guard", [Authenticator(keys={}), Authenticator(users={}), Authenticator(users={"a": "b"})])
def test_null_is_refused_if_peers_must_authenticate(guard: Authenticator) -> None:
    verdict = guard.judge(Claim("NULL", ""))
    assert not verdict.allowed
    assert "NULL" in verdict.reason


@pytest.mark.parametrize("mechanism", ["", "null", "GSSAPI", "CURVE\x00", "\udc80"])
def test_an_unknown_mechanism_is_refused(mechanism: str) -> None:
    verdict = Authenticator().judge(Claim(mechanism, HERE))
    assert not verdict.allowed
    assert verdict.reason.isascii()


def test_any_key_is_allowed_if_none_is_listed() -> None:
    verdict = Authenticator().judge(curve(ALICE.public))
    assert verdict == Verdict(True, ALICE.public_z85, verdict.reason)


def test_only_listed_keys_are_allowed() -> None:
    guard = Authenticator(keys={"alice": ALICE.public})
    assert guard.judge(curve(ALICE.public)).user == "alice"
    refused = guard.judge(curve(BOB.public))
    assert not refused.allowed
    assert refused.user == ""
    assert BOB.public_z85 in refused.reason


def test_an_empty_list_of_keys_allows_none() -> None:
    assert not Authenticator(keys={}).judge(curve(ALICE.public)).allowed


@pytest.mark.parametrize("length", [0, 31, 33])
@pytest.mark.parametrize("guard", [Authenticator(), Authenticator(keys={"alice": ALICE.public})])
def test_a_key_of_a_wrong_length_is_refused(guard: Authenticator, length: int) -> None:
    assert not guard.judge(curve(bytes(length))).allowed


def test_a_listed_key_must_be_a_key() -> None:
    with pytest.raises(InvalidKeyError, match="'alice' has 40 bytes, not 32"):
        Authenticator(keys={"alice": ALICE.public_z85.encode()})


def test_a_key_of_two_names_is_known_by_the_first() -> None:
    guard = Authenticator(keys={"zoe": ALICE.public, "alice": ALICE.public})
    assert guard.judge(curve(ALICE.public)).user == "alice"


def test_plain_users() -> None:
    guard = Authenticator(users={"alice": "swordfish", "bob": ""})
    assert guard.judge(plain("alice", "swordfish")).user == "alice"
    assert guard.judge(plain("bob", "")).allowed
    for username, password in [
        ("alice", ""),
        ("alice", "swordfis"),
        ("carol", "swordfish"),
        ("", ""),
        ("Alice", "x"),
    ]:
        assert not guard.judge(plain(username, password)).allowed


@pytest.mark.parametrize("guard", [Authenticator(), Authenticator(users={}), Authenticator(keys={})])
def test_no_plain_user_is_allowed_if_none_is_listed(guard: Authenticator) -> None:
    assert not guard.judge(plain("alice", "")).allowed


def test_text_that_is_no_utf8_is_a_wrong_password() -> None:
    guard = Authenticator(users={"alice": "swordfish"})
    assert not guard.judge(plain("alice", "\udcff\ud800")).allowed
    assert not guard.judge(plain("\udcff", "swordfish")).allowed


@given(st.text(), st.text())
def test_exactly_the_right_password_is_right(right: str, given_one: str) -> None:
    guard = Authenticator(users={"alice": right})
    assert guard.judge(plain("alice", given_one)).allowed is (right == given_one)
    assert guard.judge(plain("alice", right)).allowed


def test_a_refusal_does_not_tell_an_unknown_user_from_a_wrong_password() -> None:
    guard = Authenticator(users={"alice": "swordfish"})
    assert guard.judge(plain("alice", "wrong")) == guard.judge(plain("nobody", "wrong"))


def test_an_unknown_user_costs_the_same_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[int, int]] = []
    real: Callable[[bytes, bytes], bool] = hmac.compare_digest

    def watching(left: bytes, right: bytes) -> bool:
        compared.append((len(left), len(right)))
        return real(left, right)

    guard = Authenticator(users={"alice": "swordfish"})
    monkeypatch.setattr(hmac, "compare_digest", watching)
    for claim in (plain("alice", "swordfish"), plain("alice", "x"), plain("nobody", "x" * 1000)):
        guard.judge(claim)
    assert compared == [(32, 32)] * 3


# Addresses


@pytest.mark.parametrize(
    ("allowed", "denied", "address", "passes"),
    [
        ([], [], "203.0.113.5", True),
        ([], [], "2001:db8::1", True),
        (["192.0.2.1"], [], "192.0.2.1", True),
        (["192.0.2.1"], [], "192.0.2.2", False),
        (["192.0.2.0/24", "10.0.0.0/8"], [], "10.9.8.7", True),
        (["192.0.2.0/24"], [], "2001:db8::1", False),
        (["2001:db8::/32"], [], "2001:db8:1::1", True),
        ([], ["192.0.2.0/24"], "192.0.2.77", False),
        ([], ["192.0.2.0/24"], "192.0.3.1", True),
        (["192.0.2.0/24"], ["192.0.2.7"], "192.0.2.7", False),
        (["192.0.2.7"], ["192.0.2.0/24"], "192.0.2.7", False),
        (["192.0.2.0/24"], ["192.0.2.7"], "192.0.2.8", True),
        # A dual-stack socket shows IPv4 peers as ::ffff:a.b.c.d.
        (["192.0.2.0/24"], [], "::ffff:192.0.2.1", True),
        ([], ["192.0.2.0/24"], "::ffff:192.0.2.1", False),
        ([], ["::ffff:192.0.2.1"], "192.0.2.1", False),
        ([], ["::ffff:192.0.2.0/120"], "192.0.2.200", False),
        (["::ffff:0:0/96"], [], "192.0.2.1", True),
        ([], ["fe80::/10"], "fe80::1%eth0", False),
        ([], ["fe80::1"], "fe80::1%eth0", False),
        ([], ["fe80::1%eth1"], "fe80::1%eth0", False),
        (["0.0.0.0/0"], [], "2001:db8::1", False),
    ],
)
def test_address_rules(allowed: list[str], denied: list[str], address: str, passes: bool) -> None:
    guard = Authenticator(allow=allowed, deny=denied)
    assert guard.judge_address(address).allowed is passes
    assert guard.judge(Claim("NULL", address)).allowed is passes
    assert guard.judge(curve(ALICE.public, address)).allowed is passes


def test_peers_without_an_address_pass_the_address_rules() -> None:
    guard = Authenticator(allow=["192.0.2.1"], deny=["0.0.0.0/0", "::/0"])
    assert guard.judge_address("").allowed
    assert guard.judge(Claim("NULL", "")).allowed


@pytest.mark.parametrize("address", ["localhost", "192.0.2", "192.0.2.1:5555", "\udc80", " "])
def test_an_invalid_address_is_refused(address: str) -> None:
    verdict = Authenticator().judge_address(address)
    assert not verdict.allowed
    assert verdict.reason.isascii()


def test_a_good_password_does_not_help_a_denied_address() -> None:
    guard = Authenticator(users={"alice": "swordfish"}, deny=["192.0.2.0/24"])
    verdict = guard.judge(plain("alice", "swordfish"))
    assert verdict == Verdict(False, "", "address 192.0.2.1 is denied by 192.0.2.0/24")


def test_a_refused_address_is_named() -> None:
    verdict = Authenticator(allow=["10.0.0.0/8"]).judge_address(HERE)
    assert verdict.reason == "address 192.0.2.1 is not among the allowed addresses"


@pytest.mark.parametrize("rule", ["", "localhost", "10.0.0.1/8", "10.0.0.0/33", "2001:db8::1/32", "10.0.0"])
def test_bad_rules_are_errors(rule: str) -> None:
    with pytest.raises(AddressRuleError, match="is not an address rule") as caught:
        Authenticator(allow=[rule])
    assert repr(rule) in str(caught.value)
    with pytest.raises(AddressRuleError):
        Authenticator(deny=[rule])
    assert issubclass(AddressRuleError, ZambeziError)


def test_a_single_rule_needs_no_list() -> None:
    assert not Authenticator(deny="192.0.2.0/24").judge_address(HERE).allowed


# Changes


def test_a_keyring_is_followed(tmp_path: Path) -> None:
    guard = Authenticator(keys=Keyring(tmp_path))
    before = guard.generation
    assert not guard.judge(curve(ALICE.public)).allowed
    path = allow(tmp_path, "alice.pub", ALICE)
    guard.refresh()
    added = guard.generation
    assert added > before
    assert guard.judge(curve(ALICE.public)).user == "alice"
    guard.refresh()
    assert guard.generation == added
    path.unlink()
    guard.refresh()
    assert guard.generation > added
    assert not guard.judge(curve(ALICE.public)).allowed


def test_two_authenticators_on_one_ring_both_notice(tmp_path: Path) -> None:
    ring = Keyring(tmp_path)
    first, second = Authenticator(keys=ring), Authenticator(keys=ring)
    before = second.generation
    allow(tmp_path, "alice.pub", ALICE)
    first.refresh()
    assert second.generation > before


def test_refresh_without_a_ring_does_nothing() -> None:
    guard = Authenticator(keys={"alice": ALICE.public})
    before = guard.generation
    guard.refresh()
    assert guard.generation == before


def test_update_replaces_the_given_rules_and_keeps_the_rest() -> None:
    guard = Authenticator(keys={"alice": ALICE.public}, users={"alice": "swordfish"}, allow=["192.0.2.0/24"])
    generation = guard.generation

    guard.update(users={"bob": "shark"})
    assert guard.generation > generation
    generation = guard.generation
    assert not guard.judge(plain("alice", "swordfish")).allowed
    assert guard.judge(plain("bob", "shark")).allowed
    assert guard.judge(curve(ALICE.public)).allowed
    assert not guard.judge_address("10.0.0.1").allowed

    guard.update(allow=(), deny=["192.0.2.1"])
    assert guard.generation > generation
    generation = guard.generation
    assert guard.judge_address("10.0.0.1").allowed
    assert not guard.judge_address(HERE).allowed

    guard.update(keys=None, users=None, deny=())
    assert guard.generation > generation
    assert guard.judge(curve(BOB.public)).allowed
    assert not guard.judge(plain("bob", "shark")).allowed
    assert guard.judge(Claim("NULL", HERE)).allowed


def test_a_failed_update_changes_nothing() -> None:
    guard = Authenticator(users={"alice": "swordfish"})
    generation = guard.generation
    with pytest.raises(AddressRuleError):
        guard.update(users={}, deny=["nonsense"])
    assert guard.generation == generation
    assert guard.judge(plain("alice", "swordfish")).allowed


def test_generation_grows_when_a_younger_keyring_replaces_one(tmp_path: Path) -> None:
    old, young = tmp_path / "old", tmp_path / "young"
    old.mkdir()
    young.mkdir()
    guard = Authenticator(keys=Keyring(old))
    for name in ("a.pub", "b.pub", "c.pub"):
        allow(old, name, ALICE)
        guard.refresh()
    before = guard.generation
    guard.update(keys=Keyring(young))
    assert guard.generation > before


def test_rules_are_copied() -> None:
    users, keys = {"alice": "swordfish"}, {"alice": ALICE.public}
    guard = Authenticator(users=users, keys=keys)
    users["bob"] = "shark"
    keys["bob"] = BOB.public
    assert not guard.judge(plain("bob", "shark")).allowed
    assert not guard.judge(curve(BOB.public)).allowed


# Secrets


def test_no_text_contains_a_password() -> None:
    guard = Authenticator(users={"alice": "swordfish"}, allow=["192.0.2.0/24"])
    claim = plain("alice", "swordfish")
    texts = [repr(guard), str(guard), repr(claim), str(claim), repr(guard.judge(claim)), repr(vars(guard))]
    texts.append(repr(guard.judge(plain("alice", "swordfish", "10.0.0.1"))))
    assert not [text for text in texts if "swordfish" in text]


def test_a_refusal_does_not_repeat_the_user_name() -> None:
    """Users sometimes type the password in the place of the user name."""
    verdict = Authenticator(users={"alice": "swordfish"}).judge(plain("hunter2", ""))
    assert "hunter2" not in repr(verdict)


def test_repr_sums_up_the_rules(tmp_path: Path) -> None:
    assert repr(Authenticator()) == "<Authenticator keys: any; users: none; allow: all; deny: none>"
    guard = Authenticator(keys=Keyring(tmp_path), users={"a": "b"}, allow=["10.0.0.0/8"], deny=["10.0.0.1"])
    assert repr(guard) == "<Authenticator keys: 0; users: 1; allow: 10.0.0.0/8; deny: 10.0.0.1/32>"
