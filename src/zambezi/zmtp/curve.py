"""CURVE: both sides have keys, and everything is encrypted (26/CURVEZMQ over 25/ZMTP-CURVE). libsodium makes the boxes.

    client                                               server
    HELLO     C', Box[64 zeros](C'->S)             --->  opens it: the client knows the server's public key S
              opens it: the server has S's secret  <---  WELCOME   Box[S' + cookie](S->C')
    INITIATE  cookie, Box[C + vouch + metadata]    --->  opens it: the vouch proves that the client has C's secret,
                                                         and the authenticator decides whether C may connect
              the handshake is complete            <---  READY     Box[metadata](S'->C')

C and S are long-term keys; C' and S' are made for this connection alone. Between WELCOME and INITIATE the server keeps
only the cookie: it contains what the server must remember, encrypted with a key that changes every minute. The server
refuses a cookie that was not made on this very connection, even while its key is valid: otherwise an attacker could
replay a recorded handshake to the server, and the recorded messages after it.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import chain, repeat
from typing import Final, TypeAlias

import nacl.exceptions
import nacl.utils
from nacl.bindings import (
    crypto_box_easy,
    crypto_box_keypair,
    crypto_box_open_easy,
    crypto_secretbox_easy,
    crypto_secretbox_open_easy,
)

from zambezi.zmtp import commands
from zambezi.zmtp.authenticator import Claim
from zambezi.zmtp.box import OVERHEAD, Opener, Plan, Sealer, shared_key
from zambezi.zmtp.errors import ProtocolError
from zambezi.zmtp.frames import (
    COMMAND,
    MORE,
    Assembler,
    Batch,
    CommandFrame,
    Frames,
    Item,
    Message,
    Oversize,
    Shared,
    wire_size,
)
from zambezi.zmtp.keys import KeyPair
from zambezi.zmtp.mechanism import Mechanism, Terms

Random: TypeAlias = Callable[[int], bytes]

HELLO: Final = b"HELLO"
WELCOME: Final = b"WELCOME"
INITIATE: Final = b"INITIATE"

_HELLO_SIZE: Final = 194
_HELLO_START: Final = b"\x01\x00" + bytes(72)  # the version, and padding that makes HELLO larger than its answer
_WELCOME_SIZE: Final = 160
_COOKIE_SIZE: Final = 96
_INITIATE_LEAST: Final = _COOKIE_SIZE + 8 + 16 + 128
_READY_LEAST: Final = 8 + 16
_PRODUCT: Final = {commands.PRODUCT: b"1"}


class CookieKey:
    """The key that encrypts cookies. It changes every `lifetime` seconds; the previous key still opens cookies."""

    __slots__ = ("_current", "_lifetime", "_made", "_previous", "_random")

    def __init__(self, lifetime: float = 60.0, random: Random = nacl.utils.random) -> None:
        self._lifetime = lifetime
        self._random = random
        self._current = b""
        self._previous = b""
        self._made = 0.0

    def seal(self, plaintext: bytes, now: float) -> bytes:
        """Return a cookie."""
        self._rotate(now)
        nonce = self._random(16)
        return nonce + crypto_secretbox_easy(plaintext, b"COOKIE--" + nonce, self._current)

    def open(self, cookie: bytes, now: float) -> bytes:
        """Return the content of a cookie; raise `ProtocolError` if neither key opens it."""
        self._rotate(now)
        for key in (self._current, self._previous):
            if key:
                try:
                    return crypto_secretbox_open_easy(cookie[16:], b"COOKIE--" + cookie[:16], key)
                except nacl.exceptions.CryptoError:
                    continue
        raise ProtocolError("CURVE: the cookie in INITIATE is too old or is not ours")

    def _rotate(self, now: float) -> None:
        if not self._current or now - self._made >= 2 * self._lifetime:
            self._previous, self._current, self._made = b"", self._random(32), now
        elif now - self._made >= self._lifetime:
            # As if the key had changed on time: the previous key must not live longer just because no client connected.
            self._previous, self._current = self._current, self._random(32)
            self._made += self._lifetime


class _Curve(Mechanism):
    """The part that both sides share: the boxes of the traffic, after the handshake."""

    name = "CURVE"
    sealed = True
    seal_prefix: bytes
    open_prefix: bytes

    def __init__(self, terms: Terms, keys: KeyPair, random: Random) -> None:
        super().__init__(terms)
        self._keys = keys
        self._random = random
        self.assembler: Assembler = Assembler(terms.message_limit, OVERHEAD)
        self._nonce = 1  # of the next box that we seal
        self._heard = bytes(8)  # the nonce of the last box that we opened

    def _next_nonce(self) -> bytes:
        nonce = self._nonce.to_bytes(8, "big")
        self._nonce += 1
        return nonce

    def _hear(self, nonce: bytes) -> None:
        if nonce <= self._heard:
            raise ProtocolError("CURVE: a nonce did not grow: a command was repeated or replayed")
        self._heard = nonce

    def _establish(self, public: bytes, secret: bytes) -> None:
        key = shared_key(public, secret)
        self._sealer = Sealer(key, self.seal_prefix, self._nonce)
        self._opener = Opener(key, self.open_prefix, self._heard)

    def refuse_multipart(self) -> None:
        self.assembler.multipart = False

    def encode(self, messages: Sequence[Message], singles: bool) -> bytes:
        if singles:
            return self._sealer.seal(repeat(0), messages)  # type: ignore[arg-type]
        blocks: list[bytes] = []
        rest: list[Frames] = []
        for message in messages:
            # A plan does not pay for one peer. The first peer only notes that one is wanted; the second makes it.
            if isinstance(message, Shared) and message.plan is not None:
                if rest:
                    blocks.append(self._sealer.seal(*_flat(rest)))
                    rest = []
                if not isinstance(message.plan, Plan):
                    message.plan = Plan(*_flat(message.messages))
                blocks.append(self._sealer.seal_plan(message.plan))
            elif isinstance(message, Shared):
                message.plan = "wanted"
                rest += message.messages
            else:
                rest.append(message)
        if rest:
            blocks.append(self._sealer.seal(*_flat(rest)))
        return blocks[0] if len(blocks) == 1 else b"".join(blocks)

    def encode_command(self, body: bytes) -> bytes:
        return self._sealer.seal([COMMAND], [body])

    def decode(self, items: list[Item]) -> list[Item]:
        for index, item in enumerate(items):
            if isinstance(item, Oversize):
                before = self.decode(items[:index])
                return before if self.failure else [*before, item, *self.decode(items[index + 1 :])]
        return self._open_all(items)  # type: ignore[arg-type]

    def _open_all(self, items: list[Batch | CommandFrame]) -> list[Item]:
        flags = bytearray()
        payloads: list[bytes] = []
        octets = 0
        try:
            for item in items:
                # libzmq sends MESSAGE with the flags of a message; the specification calls it a command. Accept both.
                if isinstance(item, CommandFrame):
                    if len(item) > self.assembler.message_limit + OVERHEAD:
                        raise ProtocolError(f"a message is over the limit of {self.assembler.message_limit} bytes")
                    octets += wire_size(item)
                    self._opener.open([item], flags, payloads)
                    continue
                octets += item.octets
                if item.ends is None:
                    self._opener.open(item.frames, flags, payloads)
                    continue
                for message in item:
                    if len(message) > 1:
                        raise ProtocolError("CURVE: the header of a box says that more frames follow")
                    self._opener.open(message, flags, payloads)
        except ProtocolError as error:
            self.failure = error
        whole = self.assembler.assemble(flags, payloads, octets)
        # All boxes are opened before their frames are assembled, so a failure of the assembler is about earlier bytes.
        self.failure = self.assembler.failure or self.failure
        return whole


class CurveClient(_Curve):
    """The client: it must know the server's public key."""

    first_state = "wait for WELCOME"
    suspicion = "is the server key right, our key allowed, and the identity free?"
    table = {
        ("wait for WELCOME", WELCOME): "_welcome",
        ("wait for READY", commands.READY): "_ready",
    }
    seal_prefix = b"CurveZMQMESSAGEC"
    open_prefix = b"CurveZMQMESSAGES"

    def __init__(
        self,
        terms: Terms,
        keys: KeyPair,
        server_key: bytes,
        random: Random = nacl.utils.random,
    ) -> None:
        super().__init__(terms, keys, random)
        self._server = server_key
        self._short_public, self._short_secret = crypto_box_keypair()

    @property
    def peer_key(self) -> bytes:
        """The public key of the server: without its secret, the server could not have answered."""
        return self._server

    def begin(self) -> bytes:
        nonce = self._next_nonce()
        box = _box(bytes(64), b"CurveZMQHELLO---" + nonce, self._server, self._short_secret)
        return commands.command(HELLO, _HELLO_START + self._short_public + nonce + box)

    def _welcome(self, data: bytes, now: float) -> bytes:
        if len(data) != _WELCOME_SIZE:
            raise ProtocolError(f"CURVE: WELCOME has {len(data)} bytes of data, not {_WELCOME_SIZE}")
        welcome = _open(
            data[16:],
            b"WELCOME-" + data[:16],
            self._server,
            self._short_secret,
            "WELCOME does not open: wrong server key?",
        )
        self._short_server, cookie = welcome[:32], welcome[32:]
        vouch_nonce = self._random(16)
        vouch = _box(
            self._short_public + self._server,
            b"VOUCH---" + vouch_nonce,
            self._short_server,
            self._keys.secret,
        )
        nonce = self._next_nonce()
        box = _box(
            self._keys.public + vouch_nonce + vouch + commands.encode_metadata({**self.metadata, **_PRODUCT}),
            b"CurveZMQINITIATE" + nonce,
            self._short_server,
            self._short_secret,
        )
        self.state = "wait for READY"
        return commands.command(INITIATE, cookie + nonce + box)

    def _ready(self, data: bytes, now: float) -> None:
        if len(data) < _READY_LEAST:
            raise ProtocolError("CURVE: READY is too short")
        nonce = data[:8]
        metadata = _open(
            data[8:],
            b"CurveZMQREADY---" + nonce,
            self._short_server,
            self._short_secret,
            "READY does not open",
        )
        self._hear(nonce)
        self._take_metadata(metadata)
        self._establish(self._short_server, self._short_secret)
        self.state = "complete"


class CurveServer(_Curve):
    """The server: clients know its public key, and it decides which clients may connect."""

    as_server = True
    first_state = "wait for HELLO"
    table = {
        ("wait for HELLO", HELLO): "_hello",
        ("wait for INITIATE", INITIATE): "_initiate",
    }
    seal_prefix = b"CurveZMQMESSAGES"
    open_prefix = b"CurveZMQMESSAGEC"

    def __init__(
        self,
        terms: Terms,
        keys: KeyPair,
        cookie_key: CookieKey,
        random: Random = nacl.utils.random,
    ) -> None:
        super().__init__(terms, keys, random)
        self._cookie_key = cookie_key
        self._cookie = b""

    def _hello(self, data: bytes, now: float) -> bytes:
        if len(data) != _HELLO_SIZE or data[:74] != _HELLO_START:
            raise ProtocolError("CURVE: HELLO is malformed, or its version is not 1.0")
        client, nonce = data[74:106], data[106:114]
        self._hear(nonce)
        _open(
            data[114:],
            b"CurveZMQHELLO---" + nonce,
            client,
            self._keys.secret,
            "HELLO does not open: the client has another public key for this server",
        )
        short_public, short_secret = crypto_box_keypair()
        self._cookie = self._cookie_key.seal(client + short_secret, now)
        long_nonce = self._random(16)
        box = _box(short_public + self._cookie, b"WELCOME-" + long_nonce, client, self._keys.secret)
        self.state = "wait for INITIATE"
        return commands.command(WELCOME, long_nonce + box)

    def _initiate(self, data: bytes, now: float) -> bytes:
        if len(data) < _INITIATE_LEAST:
            raise ProtocolError("CURVE: INITIATE is too short")
        cookie, nonce, box = data[:96], data[96:104], data[104:]
        if not hmac.compare_digest(cookie, self._cookie):
            raise ProtocolError("CURVE: the cookie in INITIATE is not the one of this connection")
        remembered = self._cookie_key.open(cookie, now)
        self._cookie = b""
        short_client, short_secret = remembered[:32], remembered[32:]
        self._hear(nonce)
        plaintext = _open(box, b"CurveZMQINITIATE" + nonce, short_client, short_secret, "INITIATE does not open")
        client, vouch_nonce, vouch = plaintext[:32], plaintext[32:48], plaintext[48:128]
        vouched = _open(vouch, b"VOUCH---" + vouch_nonce, client, short_secret, "the vouch in INITIATE does not open")
        if not hmac.compare_digest(vouched, short_client + self._keys.public):
            raise ProtocolError("CURVE: the vouch in INITIATE is for another connection or another server")
        properties = commands.decode_metadata(plaintext[128:])
        # A client of libzmq never comes back after ERROR, and its key may be allowed later: it gets no answer. Our own
        # clients come back, and show the reason to their users.
        self._judge(Claim("CURVE", self.address, key=client), silent=commands.PRODUCT.lower() not in properties)
        self._take_properties(properties)
        ready_nonce = self._next_nonce()
        ready = _box(
            commands.encode_metadata(self.metadata),
            b"CurveZMQREADY---" + ready_nonce,
            short_client,
            short_secret,
        )
        self._establish(short_client, short_secret)
        self.state = "complete"
        return commands.command(commands.READY, ready_nonce + ready)


def _flat(messages: Sequence[Frames]) -> tuple[bytes, list[bytes]]:
    """Return the flags and the payloads of all frames."""
    parts = [(message,) if isinstance(message, bytes) else message for message in messages]
    return b"".join(map(_flags_of, map(len, parts))), list(chain.from_iterable(parts))


@lru_cache(maxsize=64)
def _flags_of(count: int) -> bytes:
    """Return the flags of the frames of a message."""
    return bytes([MORE]) * (count - 1) + b"\0"


def _box(plaintext: bytes, nonce: bytes, public: bytes, secret: bytes) -> bytes:
    try:
        return crypto_box_easy(plaintext, nonce, public, secret)
    except nacl.exceptions.RuntimeError as error:
        raise ProtocolError("CURVE: the peer's public key is invalid: no box can be made for it") from error


def _open(box: bytes, nonce: bytes, public: bytes, secret: bytes, otherwise: str) -> bytes:
    try:
        return crypto_box_open_easy(box, nonce, public, secret)
    except (nacl.exceptions.CryptoError, nacl.exceptions.ValueError, nacl.exceptions.RuntimeError) as error:
        raise ProtocolError(f"CURVE: {otherwise}") from error
