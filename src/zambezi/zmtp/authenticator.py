"""The rules that decide which peers may connect.

A socket asks the authenticator twice. When it accepts a connection it asks about the address, before it reads or
writes any byte; after the handshake it asks about the whole claim: address, mechanism and credentials. Any number of
sockets, in any threads, can share one authenticator. The rules can change while connections exist: then `generation`
grows, and a socket that sees a new generation judges its connections again and ends those that are refused.

The rules:

- `deny` wins over `allow`. An empty `allow` allows every address. A peer without an address (ipc, inproc) passes.
- `keys` lists the allowed CURVE keys. None allows any CURVE key, which is encryption without authentication.
- `users` lists the allowed PLAIN users. None allows no PLAIN user.
- NULL proves nothing about the peer, so the authenticator refuses NULL as soon as it has keys or users: a socket that
  uses NULL by mistake must not accept every peer.

A refusal never says whether the user or the password was wrong, and takes the same time for both.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import ipaddress
import secrets
import threading
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from zambezi.errors import ZambeziError
from zambezi.zmtp import z85
from zambezi.zmtp.keyring import Keyring
from zambezi.zmtp.keys import KEY_OCTETS, InvalidKeyError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# ::ffff:0:0/96, where a dual-stack socket shows its IPv4 peers.
_MAPPED_PREFIX: Final = 96
# Larger than the generation of any keyring: if a younger ring replaces a ring, the sum still grows.
_GENERATION_STEP: Final = 1 << 32


class AddressRuleError(ZambeziError):
    """An `allow` or `deny` rule is neither an IP address nor a network."""


class _Unchanged(enum.Enum):
    UNCHANGED = enum.auto()


_UNCHANGED: Final = _Unchanged.UNCHANGED


@dataclass(frozen=True, slots=True)
class Claim:
    """The address of a peer, and the credentials that it presents."""

    mechanism: str
    """`NULL`, `PLAIN` or `CURVE`."""
    address: str
    """The peer's IP address; empty for ipc and inproc."""
    username: str = ""
    password: str = field(default="", repr=False)
    key: bytes = b""
    """The peer's long-term public key, after the handshake has proved that the peer has the secret key."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """An authenticator's decision. `user` is the name that the peer proved; empty if it proved none, or was refused."""

    allowed: bool
    user: str
    reason: str
    """The reason, for the log of this side. It contains no password, and no user name that was not proved."""


@dataclass(frozen=True, slots=True)
class _Rules:
    keys: Keyring | Mapping[bytes, str] | None
    users: Mapping[str, bytes] | None
    allow: tuple[_Network, ...]
    deny: tuple[_Network, ...]
    generation: int = 0


class Authenticator:
    """The rules that decide which peers may connect.

    >>> guard = Authenticator(users={"alice": "swordfish"}, deny=["192.0.2.0/24"])
    >>> guard.judge(Claim("PLAIN", "198.51.100.7", username="alice", password="swordfish")).user
    'alice'
    >>> guard.judge_address("192.0.2.9").reason
    'address 192.0.2.9 is denied by 192.0.2.0/24'
    """

    def __init__(
        self,
        *,
        keys: Keyring | Mapping[str, bytes] | None = None,
        users: Mapping[str, str] | None = None,
        allow: Iterable[str] = (),
        deny: Iterable[str] = (),
    ) -> None:
        self._lock = threading.Lock()
        # The authenticator keeps and compares keyed digests of one length: the time that a comparison of the passwords
        # themselves takes would reveal their length.
        self._digest_key = secrets.token_bytes(32)
        self._nobody = secrets.token_bytes(32)
        self._rules = _Rules(_by_key(keys), self._digests(users), _networks(allow), _networks(deny))

    @property
    def generation(self) -> int:
        """A number that grows, not always by one, whenever the rules change, including the keys of the keyring."""
        rules = self._rules
        return rules.generation + (rules.keys.generation if isinstance(rules.keys, Keyring) else 0)

    def refresh(self) -> None:
        """Read the keyring's directory again. If it changed, `generation` grows."""
        keys = self._rules.keys
        if isinstance(keys, Keyring):
            keys.scan()

    def update(
        self,
        *,
        keys: Keyring | Mapping[str, bytes] | _Unchanged | None = _UNCHANGED,
        users: Mapping[str, str] | _Unchanged | None = _UNCHANGED,
        allow: Iterable[str] | _Unchanged = _UNCHANGED,
        deny: Iterable[str] | _Unchanged = _UNCHANGED,
    ) -> None:
        """Replace the given rules, all at once, and keep the others. On an error, replace none."""
        with self._lock:
            rules = self._rules
            if not isinstance(keys, _Unchanged):
                rules = replace(rules, keys=_by_key(keys))
            if not isinstance(users, _Unchanged):
                rules = replace(rules, users=self._digests(users))
            if not isinstance(allow, _Unchanged):
                rules = replace(rules, allow=_networks(allow))
            if not isinstance(deny, _Unchanged):
                rules = replace(rules, deny=_networks(deny))
            # One assignment, so that no thread sees new rules with an old generation.
            self._rules = replace(rules, generation=rules.generation + _GENERATION_STEP)

    def judge_address(self, address: str) -> Verdict:
        """Decide whether a peer may connect from `address`. The socket asks before the peer has sent anything."""
        rules = self._rules
        refusal = _address_refusal(rules, address)
        return Verdict(False, "", refusal) if refusal else Verdict(True, "", "address allowed")

    def judge(self, claim: Claim) -> Verdict:
        """Decide whether a peer with this claim may connect, or stay connected."""
        rules = self._rules
        refusal = _address_refusal(rules, claim.address)
        if refusal:
            return Verdict(False, "", refusal)
        match claim.mechanism:
            case "NULL":
                return _judge_null(rules)
            case "PLAIN":
                return self._judge_plain(rules, claim)
            case "CURVE":
                return _judge_curve(rules, claim.key)
            case mechanism:
                return Verdict(False, "", f"mechanism {mechanism!a} is not known")

    def _judge_plain(self, rules: _Rules, claim: Claim) -> Verdict:
        users = rules.users if rules.users is not None else {}
        # An unknown user takes the same path as a known one, and is compared with a digest that cannot match.
        expected = users.get(claim.username, self._nobody)
        if hmac.compare_digest(self._digest(claim.password), expected):
            return Verdict(True, claim.username, "user and password are right")
        return Verdict(False, "", "wrong user or password" if users else "no PLAIN user is allowed")

    def _digests(self, users: Mapping[str, str] | None) -> Mapping[str, bytes] | None:
        if users is None:
            return None
        return MappingProxyType({user: self._digest(password) for user, password in users.items()})

    def _digest(self, password: str) -> bytes:
        # surrogatepass: a password that was not UTF-8 on the wire is a wrong password, and must not raise.
        return hashlib.blake2b(password.encode("utf-8", "surrogatepass"), key=self._digest_key, digest_size=32).digest()

    def __repr__(self) -> str:
        rules = self._rules
        keys = "any" if rules.keys is None else len(rules.keys)
        users = "none" if rules.users is None else len(rules.users)
        allow = ", ".join(map(str, rules.allow)) or "all"
        deny = ", ".join(map(str, rules.deny)) or "none"
        return f"<Authenticator keys: {keys}; users: {users}; allow: {allow}; deny: {deny}>"


def _judge_null(rules: _Rules) -> Verdict:
    if rules.keys is not None or rules.users is not None:
        return Verdict(False, "", "the peer must authenticate itself, and NULL cannot")
    return Verdict(True, "", "no authentication is required")


def _judge_curve(rules: _Rules, key: bytes) -> Verdict:
    if len(key) != KEY_OCTETS:
        return Verdict(False, "", f"a public key has {KEY_OCTETS} bytes, not {len(key)}")
    if rules.keys is None:
        return Verdict(True, z85.encode(key), "any key is allowed")
    name = rules.keys.name_of(key) if isinstance(rules.keys, Keyring) else rules.keys.get(key)
    if name is None:
        return Verdict(False, "", f"key {z85.encode(key)} is not among the allowed keys")
    return Verdict(True, name, "the key is allowed")


def _by_key(keys: Keyring | Mapping[str, bytes] | None) -> Keyring | Mapping[bytes, str] | None:
    if keys is None or isinstance(keys, Keyring):
        return keys
    names: dict[bytes, str] = {}
    for name, key in sorted(keys.items()):
        if len(key) != KEY_OCTETS:
            raise InvalidKeyError(f"the public key of {name!a} has {len(key)} bytes, not {KEY_OCTETS}")
        names.setdefault(bytes(key), name)
    return MappingProxyType(names)


def _address_refusal(rules: _Rules, address: str) -> str:
    if not address:
        return ""
    try:
        peer = _address(address)
    except ValueError:
        return f"{address!a} is not an IP address"
    for network in rules.deny:
        if peer in network:
            return f"address {peer} is denied by {network}"
    if rules.allow and not any(peer in network for network in rules.allow):
        return f"address {peer} is not among the allowed addresses"
    return ""


def _address(text: str) -> _Address:
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        # fe80::1%eth0: rules do not mention the interface.
        return ipaddress.IPv6Address(int(address))
    return address


def _networks(rules: Iterable[str]) -> tuple[_Network, ...]:
    return tuple(_network(rule) for rule in ((rules,) if isinstance(rules, str) else rules))


def _network(rule: str) -> _Network:
    try:
        network = ipaddress.ip_network(rule)
    except ValueError as error:
        # "10.0.0.1/8" is refused as well: it may mean one host, or sixteen million.
        raise AddressRuleError(
            f"{rule!a} is not an address rule ({error}); write an IP address or a network such as 10.0.0.0/8"
        ) from None
    if isinstance(network, ipaddress.IPv6Network):
        mapped = network.network_address.ipv4_mapped
        if mapped is not None and network.prefixlen >= _MAPPED_PREFIX:
            return ipaddress.IPv4Network((mapped, network.prefixlen - _MAPPED_PREFIX))
        if network.network_address.scope_id is not None:
            return ipaddress.IPv6Network((int(network.network_address), network.prefixlen))
    return network
