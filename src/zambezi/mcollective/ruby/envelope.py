"""The messages of Ruby daemons and clients, as MCollective's security plugins write them.

    psk            an envelope in Marshal; its body is a string with the message, in Marshal again
    ssl            the same in Marshal or YAML; the body of a request also has its signed time and time to live
    aes_security   the same in Marshal or YAML; the body is encrypted, so only the envelope can be read

An envelope is a hash:

    request   body senderid requestid filter collective agent callerid ttl msgtime, and hash or sslkey
    reply     body senderid requestid senderagent msgtime, and hash or sslkey

Nothing is verified here: hashes and signatures need keys, and the envelope itself is not signed by any plugin.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

from zambezi.mcollective.ruby import marshal, yaml
from zambezi.mcollective.ruby.values import Unreadable, Value

Format = Literal["marshal", "yaml"]
Hash = dict[str, Value]

MAX_NAME: Final = 255  # characters of a name or an id; the rest is cut off
MAX_TEXT: Final = 1000  # characters of an error
_MAX_TERMS: Final = 20  # of a filter
_LAST_TIME: Final = 253_402_300_799  # the end of the year 9999, in seconds since 1970
_LAST_TTL: Final = (1 << 31) - 1
_FILTERS: Final = {"identity": "identity", "cf_class": "class", "fact": "fact", "compound": "compound"}
_CONTENTS: Final = ("ssl_msg", "aes_msg")
_PING: Final = "ping"


@dataclass(frozen=True, slots=True)
class Envelope:
    """A request or a reply, as it describes itself. A field that the message does not have is None."""

    format: Format
    kind: Literal["request", "reply"]
    id: str
    agent: str
    sender: str | None = None  # the identity of the machine
    time: int | None = None  # by the sender's clock, in seconds since 1970
    is_encrypted: bool = False  # then the fields of the message itself are None
    # of requests
    caller: str | None = None
    collective: str | None = None
    ttl: int | None = None  # seconds
    filter: str | None = None  # which of the nodes with the agent are asked; None if all are
    action: str | None = None
    wants_reply: bool | None = None
    # of replies
    status: Literal["ok", "error"] | None = None
    error: str | None = None


def read(body: bytes) -> Envelope:
    """Return the request or reply of a Ruby program; raise `Unreadable` if the body is neither.

    >>> read(b"---\\n:senderid: web1\\n:requestid: 7a3c\\n:senderagent: discovery\\n:body: |\\n  --- pong\\n").sender
    'web1'
    """
    format: Format  # noqa: A001 - the name of the field
    if marshal.is_marshal(body):
        format = "marshal"  # noqa: A001
    elif yaml.is_yaml(body):
        format = "yaml"  # noqa: A001
    else:
        raise Unreadable(f"the body is neither Marshal nor YAML: it begins with {body[:3].hex() or 'nothing'}")
    envelope = _hash(_load(body, format))
    id, agent = _name(envelope.get("requestid")), _name(envelope.get("agent"))  # noqa: A001
    answering = _name(envelope.get("senderagent"))
    if id is None or (agent or answering) is None:
        raise Unreadable("the body is no envelope: it has no requestid, or neither agent nor senderagent")
    content = None if "sslkey" in envelope else _content(envelope.get("body"), format)
    described = Envelope(
        format,
        "reply" if answering is not None else "request",
        id,
        answering or agent or "",
        _name(envelope.get("senderid")),
        _number(envelope.get("msgtime"), _LAST_TIME),
        "sslkey" in envelope,
    )
    return _reply(described, content) if answering is not None else _request(described, envelope, content)


def _load(body: bytes, format: Format) -> Value:  # noqa: A002
    return marshal.load(body) if format == "marshal" else yaml.load(body)


def _content(body: Value, format: Format) -> Value:  # noqa: A002
    """Return the message in an envelope; None if it cannot be read: the envelope is still worth reading."""
    octets = body.encode() if isinstance(body, str) else body
    if not isinstance(octets, bytes):
        return None
    try:
        return _load(octets, format)
    except Unreadable:
        return None


def _request(described: Envelope, envelope: Hash, content: Value) -> Envelope:
    signed = _hash(content)
    for key in _CONTENTS:
        if key in signed:
            content = signed[key]
    asked = _hash(content)
    action = _name(asked.get("action"))
    if content == _PING:  # the whole message to the agent `discovery`
        action = _PING
    return replace(
        described,
        caller=_name(envelope.get("callerid")),
        collective=_name(envelope.get("collective")),
        # A node compares the signed values with those of the envelope, or prefers them.
        time=_number(signed.get("ssl_msgtime"), _LAST_TIME) or described.time,
        ttl=_number(signed.get("ssl_ttl", envelope.get("ttl")), _LAST_TTL),
        filter=_filter(envelope.get("filter"), described.agent),
        action=action,
        wants_reply=None if content is None else _hash(asked.get("data")).get("process_results") is not False,
    )


def _reply(described: Envelope, content: Value) -> Envelope:
    if content is None:
        return described
    answer = _hash(content)
    code = answer.get("statuscode", 0)
    if code == 0:
        return replace(described, status="ok")
    return replace(described, status="error", error=_text(answer.get("statusmsg"), MAX_TEXT))


def _filter(value: Value, agent: str) -> str | None:
    """Return a filter as text, such as "class apache, fact os=Debian"; None if it selects every node with the agent."""
    terms: list[str] = []
    for key, entries in _hash(value).items():
        if not isinstance(entries, list):
            continue
        for entry in entries[:_MAX_TERMS]:
            if key != "agent":
                terms.append(f"{_FILTERS.get(key, key)} {_term(entry)}")
            elif entry != agent:
                terms.append(f"agent {_term(entry)}")
    return _text(", ".join(terms[:_MAX_TERMS]), MAX_NAME) if terms else None


def _term(entry: Value) -> str:
    """Return one term of a filter: a name, the hash of a fact, or the statements of a compound filter."""
    if isinstance(entry, list):
        return " ".join(_text(word, MAX_NAME) or "?" for each in entry[:_MAX_TERMS] for word in _hash(each).values())
    if isinstance(entry, dict):
        fact = _hash(entry)
        return "".join(_text(fact.get(key), MAX_NAME) or "?" for key in ("fact", "operator", "value"))
    return _text(entry, MAX_NAME) or "?"


def _hash(value: Value) -> Hash:
    """Return the pairs of a hash whose keys are text; none if the value is no hash."""
    if not isinstance(value, dict):
        return {}
    return {
        key.decode("utf-8", "replace") if isinstance(key, bytes) else key: each
        for key, each in value.items()
        if isinstance(key, str | bytes)
    }


def _name(value: Value) -> str | None:
    return _text(value, MAX_NAME)


def _text(value: Value, longest: int) -> str | None:
    """Return a string, symbol or number as text; None for other values."""
    if isinstance(value, bytes):
        return value[: 4 * longest].decode("utf-8", "replace")[:longest]
    if isinstance(value, str):
        return value[:longest]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)[:longest]
    return None


def _number(value: Value, highest: int) -> int | None:
    """Return a whole number from 0 up to a bound; None for other values."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= highest:
        return None
    return value
