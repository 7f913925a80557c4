"""Traces of messages from `publish` to `recv`, by OpenTelemetry (the extra `zambezi[otel]`).

    client = Client.connect(endpoint, tracing=Tracing())

A ZEPS message has a key and a body, and no headers that could carry a `traceparent`. So nothing is carried: both ends
compute the ids of a message's trace from what both have, which is the stream, the key and the body. The span of the
publisher and those of all receivers have the same trace, with the same parent. No byte of the message changes: plain
clients notice nothing, and a replay after a year leads to the same trace. Equal messages of a stream share a trace.

The program that publishes may be in a trace of its own. The span of the message links to it, and it to the message.

>>> message = Message(1, "o-17", b"3 apples", "orders")
>>> Tracing().traceparent_of(message)
'00-c4cb4c02b6cf429b9222f53c37dd2208-413d38958afab938-01'
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Final

from zambezi.wire.text import as_bytes
from zambezi.zeps.client.arguments import Body, as_body
from zambezi.zeps.client.batch import Message, MessageBatch
from zambezi.zeps.client.publisher import Key
from zambezi.zeps.errors import ZepsError

try:
    from opentelemetry import context as contexts
    from opentelemetry import trace
except ImportError:
    raise ZepsError("traces need opentelemetry-api: pip install 'zambezi[otel]'") from None

Post = Callable[[Key, bytes], bool]
_TRACE: Final = 16  # bytes of an id
_SPAN: Final = 8
_PERSON: Final = b"zambezi trace"  # these digests are for nothing else
_SAMPLED: Final = trace.TraceFlags(trace.TraceFlags.SAMPLED)


class Tracing:
    """Makes a span for each message that a client publishes and receives. Give it to `Client.connect(tracing=...)`.

    The options:

        ratio     the part of the messages that have spans, 0.0 to 1.0. The id of the trace decides, so that both ends
                  choose the same messages if they have the same ratio
        secret    up to 64 bytes that publishers and receivers share. Without it, people who see traces can test
                  guesses of a message: the id of its trace is a digest of its content
        provider  where spans go; by default the provider that the program has set for OpenTelemetry
    """

    def __init__(
        self, ratio: float = 1.0, *, secret: bytes = b"", provider: trace.TracerProvider | None = None
    ) -> None:
        if not 0.0 <= ratio <= 1.0:
            raise ZepsError(f"ratio must be from 0.0 to 1.0, not {ratio}")
        if len(secret) > hashlib.blake2b.MAX_KEY_SIZE:
            raise ZepsError(f"secret must have at most {hashlib.blake2b.MAX_KEY_SIZE} bytes, not {len(secret)}")
        self._secret = secret
        self._below = round(ratio * (1 << 64))
        self._tracer = trace.get_tracer("zambezi", tracer_provider=provider)

    def context_of(self, message: Message) -> contexts.Context:
        """Return the context of a message that was received, as the parent of the program's own spans."""
        found = self._span_context(message.stream, as_bytes(message.key), message.body)
        return trace.set_span_in_context(trace.NonRecordingSpan(found), contexts.Context())

    def traceparent_of(self, message: Message) -> str:
        """Return W3C's `traceparent` of a message that was received, to pass on, for example in an HTTP request."""
        found = self._span_context(message.stream, as_bytes(message.key), message.body)
        ids = f"{trace.format_trace_id(found.trace_id)}-{trace.format_span_id(found.span_id)}"
        return f"00-{ids}-{found.trace_flags:02x}"

    # Calls from the client

    def wrap_post(self, stream: str, post: Post) -> Post:
        """Return a function that posts a message to a stream, and makes its span."""

        def traced(key: Key, body: Body) -> bool:
            is_posted = post(key, body)  # type: ignore[arg-type]  # it checks the type itself
            self.note_published(stream, ((key, as_body(body)),))
            return is_posted

        return traced

    def note_published(self, stream: str, items: Iterable[tuple[Key, bytes]]) -> None:
        """Make the spans of messages that are published."""
        current = trace.get_current_span()
        origin = current.get_span_context()
        links = [trace.Link(origin)] if origin.is_valid else []
        for key, body in items:
            raw = as_bytes(key) if isinstance(key, str) else key
            found = self._span_context(stream, raw, body)
            if found.trace_flags:
                self._make_span(trace.SpanKind.PRODUCER, "send", found, stream, raw, body, links=links)
                if current.is_recording():
                    current.add_link(found)

    def note_received(self, batch: MessageBatch) -> None:
        """Make the spans of messages that the program gets."""
        for sequence, key, body in zip(batch.sequences(), batch.raw_keys(), batch.bodies(), strict=True):
            found = self._span_context(batch.stream, key, body)
            if found.trace_flags:
                self._make_span(trace.SpanKind.CONSUMER, "receive", found, batch.stream, key, body, sequence)

    def _make_span(
        self,
        kind: trace.SpanKind,
        operation: str,
        parent: trace.SpanContext,
        stream: str,
        key: bytes,
        body: bytes,
        sequence: int | None = None,
        links: list[trace.Link] | None = None,
    ) -> None:
        name = _shown(as_bytes(stream))
        span = self._tracer.start_span(
            f"{operation} {name}",
            trace.set_span_in_context(trace.NonRecordingSpan(parent), contexts.Context()),
            kind,
            {
                "messaging.system": "zeps",
                "messaging.operation.type": operation,
                "messaging.operation.name": operation,
                "messaging.destination.name": name,
                "messaging.message.body.size": len(body),
                "zeps.message.key": _shown(key),
            },
            links,
        )
        if sequence is not None:
            span.set_attribute("zeps.message.sequence", sequence)
        span.end()

    def _span_context(self, stream: str, key: bytes, body: bytes) -> trace.SpanContext:
        name = as_bytes(stream)
        digest = hashlib.blake2b(digest_size=_TRACE + _SPAN, key=self._secret, person=_PERSON)
        digest.update(b"%d %d " % (len(name), len(key)))
        digest.update(name)
        digest.update(key)
        digest.update(body)
        octets = digest.digest()
        trace_id = int.from_bytes(octets[:_TRACE])
        is_sampled = trace_id % (1 << 64) < self._below
        flags = _SAMPLED if is_sampled else trace.DEFAULT_TRACE_OPTIONS
        return trace.SpanContext(trace_id, int.from_bytes(octets[_TRACE:]), is_remote=True, trace_flags=flags)


def _shown(octets: bytes) -> str:
    """Return a name or a key as a text: bytes that are not UTF-8 are escaped, because attributes are UTF-8."""
    return octets.decode("utf-8", "backslashreplace")
