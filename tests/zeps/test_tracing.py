"""zambezi.zeps.tracing: spans of messages, and ids that both ends compute."""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, SpanKind

from tests.zeps.faces import TCP, Connect, both_faces
from tests.zmtp.waiting import PATIENCE, in_loop
from zambezi.zeps.asyncio import Client
from zambezi.zeps.broker import Broker
from zambezi.zeps.client.batch import Message
from zambezi.zeps.errors import ZepsError
from zambezi.zeps.tracing import Tracing


class Spans:
    """A provider that keeps its spans in memory."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    @property
    def finished(self) -> tuple[ReadableSpan, ...]:
        return self._exporter.get_finished_spans()

    def by_trace(self) -> dict[int, list[str]]:
        """Return the names of the spans of each trace."""
        found: defaultdict[int, list[str]] = defaultdict(list)
        for span in self.finished:
            found[context(span).trace_id].append(span.name)
        return found


def context(span: ReadableSpan) -> SpanContext:
    found: SpanContext | None = span.get_span_context()
    assert found is not None
    return found


@both_faces
@in_loop
async def test_a_message_has_one_trace_from_publish_to_recv(tmp_path: Path, connect: Connect) -> None:
    spans = Spans()
    async with Broker(tmp_path) as broker:
        endpoint = broker.bind(TCP)
        async with (
            connect(endpoint, tracing=Tracing(provider=spans.provider)) as publisher,
            connect(endpoint, tracing=Tracing(provider=spans.provider)) as receiver,
            receiver.stream("orders").subscribe(since="earliest") as subscription,
        ):
            stream = publisher.stream("orders")
            await stream.publish("a", b"1")
            await stream.publish("b", bytearray(b"2"))
            await stream.publish_many([("c", b"3"), (b"d", b"4")])
            await stream.flush(PATIENCE)
            got = [await subscription.recv(PATIENCE) for _ in range(4)]
    assert list(spans.by_trace().values()) == [["send orders", "receive orders"]] * 4
    for sent, received in zip(spans.finished[:4], [spans.finished[index] for index in range(4, 8)], strict=True):
        assert sent.kind is SpanKind.PRODUCER
        assert received.kind is SpanKind.CONSUMER
        assert sent.parent == received.parent
    message = spans.finished[4].attributes
    assert message is not None
    assert (message["zeps.message.key"], message["zeps.message.sequence"]) == ("a", got[0].sequence)
    assert message["messaging.destination.name"] == "orders"


@in_loop
async def test_named_readers_and_groups_have_spans_too(tmp_path: Path) -> None:
    spans = Spans()
    async with Broker(tmp_path) as broker:
        tracing = Tracing(provider=spans.provider)
        async with Client.connect(broker.bind(TCP), tracing=tracing) as client:
            stream = client.stream("s")
            await stream.publish("k", b"x")
            await stream.flush(PATIENCE)
            async with stream.subscribe(name="n", since="earliest") as named:
                await named.recv(PATIENCE)
            async with stream.subscribe(shared="g", since="earliest") as shared:
                await shared.recv_batch(PATIENCE)
    assert list(spans.by_trace().values()) == [["send s", "receive s", "receive s"]]


@in_loop
async def test_the_trace_of_the_program_and_that_of_the_message_link_to_each_other(tmp_path: Path) -> None:
    spans = Spans()
    tracing = Tracing(provider=spans.provider)
    async with Broker(tmp_path) as broker, Client.connect(broker.bind(TCP), tracing=tracing) as client:
        stream = client.stream("s")
        with spans.provider.get_tracer("program").start_as_current_span("request"):
            await stream.publish("k", b"x")
        await stream.flush(PATIENCE)
        async with stream.subscribe(since="earliest") as subscription:
            message = await subscription.recv(PATIENCE)
            with spans.provider.get_tracer("program").start_as_current_span("handle", tracing.context_of(message)):
                pass
    sent, request, received, handled = spans.finished
    assert [link.context.trace_id for link in sent.links] == [context(request).trace_id]
    assert [link.context.trace_id for link in request.links] == [context(sent).trace_id]
    assert context(handled).trace_id == context(received).trace_id == context(sent).trace_id
    parent = handled.parent
    assert parent is not None
    assert tracing.traceparent_of(message) == f"00-{parent.trace_id:032x}-{parent.span_id:016x}-01"


def test_ids_depend_on_the_whole_message_and_on_the_secret() -> None:
    messages = [
        Message(1, "k", b"x", "s"),
        Message(1, "k", b"y", "s"),
        Message(1, "kx", b"", "s"),
        Message(1, "", b"x", "sk"),
        Message(1, "\udcff", b"x", "s"),
    ]
    ids = [Tracing(secret=secret).traceparent_of(one) for secret in (b"", b"a", b"b") for one in messages]
    assert len(set(ids)) == len(ids)
    again = Message(2, "k", b"x", "s")
    assert Tracing().traceparent_of(again) == ids[0]  # equal messages share a trace


def test_both_ends_choose_the_same_messages_if_not_all_have_spans() -> None:
    one, other = Spans(), Spans()
    items: list[tuple[str | bytes, bytes]] = [("k", b"%d" % number) for number in range(1000)]
    Tracing(0.25, provider=one.provider).note_published("s", items)
    Tracing(0.5, provider=other.provider).note_published("s", items)
    assert 150 < len(one.finished) < 350 < len(other.finished) < 650
    assert one.by_trace().keys() < other.by_trace().keys()
    for ratio, flag in ((0.0, "00"), (1.0, "01")):
        assert Tracing(ratio).traceparent_of(Message(1, "k", b"x", "s")).endswith(f"-{flag}")


@pytest.mark.parametrize(("arguments", "problem"), [({"ratio": 2.0}, "ratio must be"), ({"secret": b"x" * 65}, "64")])
def test_mistakes_are_refused(arguments: dict[str, object], problem: str) -> None:
    with pytest.raises(ZepsError, match=problem):
        Tracing(**arguments)  # type: ignore[arg-type]


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "zambezi.zeps.tracing")
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ZepsError, match=r"pip install 'zambezi\[otel\]'"):
        import zambezi.zeps.tracing  # noqa: F401


@in_loop
async def test_a_client_without_tracing_does_no_work_for_it(tmp_path: Path) -> None:
    async with Broker(tmp_path) as broker, Client.connect(broker.bind(TCP)) as client:
        stream = client.stream("s")
        assert stream._post == stream._engine.post
        assert stream.subscribe()._tracing is None
