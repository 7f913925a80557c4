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

from dataclasses import dataclass
from typing import Final, Literal

from zambezi.mcollective.ruby import marshal, yaml
from zambezi.mcollective.ruby.values import Unreadable, Value

Format = Literal["marshal", "yaml"]

MAX_NAME: Final = 255  # characters of a name or an id; the rest is cut off
MAX_TEXT: Final = 1000  # characters of an error
_MAX_TERMS: Final = 20  # of a filter
_LAST_TIME: Final = 253_402_300_799  # the end of the year 9999, in seconds since 1970
_LAST_TTL: Final = (1 << 31) - 1
_FILTERS: Final = {"cf_class": "class"}  # the others have names that people know
_PINGS: Final = ("ping", b"ping")


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
    found = _load(body, format)
    id, agent, answering = (_name(_get(found, key)) for key in ("requestid", "agent", "senderagent"))  # noqa: A001
    is_encrypted = _get(found, "sslkey") is not None
    content = None if is_encrypted else _content(_get(found, "body"), format)
    sender, time = _name(_get(found, "senderid")), _number(_get(found, "msgtime"), _LAST_TIME)
    if id is not None and answering is not None:
        status, error = _outcome(content)
        return Envelope(
            format, "reply", id, answering, sender, time, is_encrypted=is_encrypted, status=status, error=error
        )
    if id is None or agent is None:
        raise Unreadable("the body is no envelope: it has no requestid, or neither agent nor senderagent")
    # A node compares the signed values with those of the envelope, or prefers them.
    signed_time, signed_ttl = _get(content, "ssl_msgtime"), _get(content, "ssl_ttl")
    action, wants_reply = _asked(content)
    return Envelope(
        format,
        "request",
        id,
        agent,
        sender,
        time if signed_time is None else _number(signed_time, _LAST_TIME),
        is_encrypted=is_encrypted,
        caller=_name(_get(found, "callerid")),
        collective=_name(_get(found, "collective")),
        ttl=_number(_get(found, "ttl") if signed_ttl is None else signed_ttl, _LAST_TTL),
        filter=_filter(_get(found, "filter"), agent),
        action=action,
        wants_reply=wants_reply,
    )


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


def _asked(content: Value) -> tuple[str | None, bool | None]:
    """Return the action of a request, and whether the caller wants replies; None if the message cannot be read."""
    if content is None:
        return None, None
    signed = _get(content, "ssl_msg")
    message = content if signed is None else signed
    if message in _PINGS:  # the whole message to the agent `discovery`
        return "ping", True
    return _name(_get(message, "action")), _get(_get(message, "data"), "process_results") is not False


def _outcome(content: Value) -> tuple[Literal["ok", "error"] | None, str | None]:
    """Return the status of a reply, and its error; None if the message cannot be read."""
    if content is None:
        return None, None
    if _get(content, "statuscode") in (None, 0):
        return "ok", None
    return "error", _text(_get(content, "statusmsg"), MAX_TEXT)


def _filter(value: Value, agent: str) -> str | None:
    """Return a filter as text, such as "class apache, fact os=Debian"; None if it selects every node with the agent."""
    if not isinstance(value, dict):
        return None
    terms: list[str] = []
    for key, entries in value.items():
        if not isinstance(entries, list) or not entries:
            continue
        kind = _name(key) or "?"
        for entry in entries[:_MAX_TERMS]:
            term = _term(entry)
            if kind != "agent" or term != agent:
                terms.append(f"{_FILTERS.get(kind, kind)} {term}")
    return _name(", ".join(terms[:_MAX_TERMS])) if terms else None


def _term(entry: Value) -> str:
    """Return one term of a filter: a name, the hash of a fact, or the statements of a compound filter."""
    if isinstance(entry, list):
        statements = [each for each in entry[:_MAX_TERMS] if isinstance(each, dict)]
        return " ".join(_name(word) or "?" for each in statements for word in list(each.values())[:_MAX_TERMS])
    if isinstance(entry, dict):
        return "".join(_name(_get(entry, key)) or "?" for key in ("fact", "operator", "value"))
    return _name(entry) or "?"


def _get(value: Value, key: str) -> Value:
    """Return the value of a key of a hash; None if there is no such key, or no hash. Ruby 1.8 wrote keys as bytes."""
    if not isinstance(value, dict):
        return None
    found = value.get(key)
    return value.get(key.encode()) if found is None else found


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
