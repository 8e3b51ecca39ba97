"""Spans and metrics, read back from OpenTelemetry's own SDK."""

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.unit.client.fake_cluster import FakeCluster, ManualClock, on_loop

from tandemq.client import otel
from tandemq.client.listener import Action
from tandemq.client.message import ReceivedMessage
from tandemq.client.producer import Producer
from tandemq.client.push_consumer import PushConsumer
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command
from tandemq.errors import SendFailed
from tandemq.model.message import Message, decode_properties
from tandemq.testing.waiting import until

ONE = Message(topic="T", body=b"x", tags="A", keys=("k",))


class Seen:
    def __init__(self) -> None:
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        tracers = TracerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.meters = MeterProvider([self.reader])
        otel.instrument(tracer_provider=tracers, meter_provider=self.meters, clock=ManualClock())

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def metric(self, name: str) -> dict[str, Any]:
        """Outcome -> value of a counter, or count of a histogram."""
        data: Any = self.reader.get_metrics_data()
        found = {}
        for metric in data.resource_metrics[0].scope_metrics[0].metrics:
            if metric.name == name:
                for point in metric.data.data_points:
                    found[point.attributes["outcome"]] = getattr(point, "value", getattr(point, "count", None))
        return found


@pytest.fixture
def seen() -> Iterator[Seen]:
    made = Seen()
    yield made
    otel.uninstrument()


def properties(cluster: FakeCluster) -> dict[str, str]:
    command = next(c for c in reversed(cluster.commands) if c.code == RequestCode.SEND_MESSAGE_V2)
    return decode_properties(command.ext["i"].encode())


@on_loop
async def test_every_way_of_sending_is_a_span_whose_context_travels(seen: Seen) -> None:
    cluster = FakeCluster()
    async with Producer("p", session=cluster.session()) as producer:
        await producer.send(ONE)
        (span,) = seen.spans("send T")
        assert span.context is not None
        assert f"{span.context.trace_id:032x}-{span.context.span_id:016x}" in properties(cluster)["traceparent"]
        await (await producer.submit(ONE))
        await producer.send_oneway(ONE)
        await producer.send_batch([ONE, ONE])
    kinds = [span.kind for span in seen.spans("send T")]
    assert kinds == [trace.SpanKind.PRODUCER] * 4
    attributes = dict(seen.spans("send T")[0].attributes or {})
    assert attributes["messaging.system"] == "rocketmq"
    assert attributes["messaging.destination.name"] == "T"
    assert attributes["messaging.rocketmq.message.tag"] == "A"
    assert attributes["server.address"] == "a"
    assert len(str(attributes["messaging.message.id"])) == 32
    assert (seen.spans("send T")[3].attributes or {})["messaging.batch.message_count"] == 2
    assert seen.metric("messaging.client.sent.messages") == {"ok": 5}
    assert seen.metric("messaging.client.operation.duration") == {"ok": 4}


@on_loop
async def test_a_send_that_fails_is_an_error(seen: Seen) -> None:
    cluster = FakeCluster()
    cluster.on[RequestCode.SEND_MESSAGE_V2] = lambda *_: Command(ResponseCode.MESSAGE_ILLEGAL, remark="no")
    async with Producer("p", session=cluster.session()) as producer:
        with pytest.raises(SendFailed):
            await producer.send(ONE)
        with pytest.raises(SendFailed):
            await (await producer.submit(ONE))
        cluster.on[RequestCode.SEND_MESSAGE_V2] = lambda *_: Command(ResponseCode.FLUSH_DISK_TIMEOUT, {})
        await producer.send(ONE)
    statuses = [span.status.status_code.name for span in seen.spans("send T")]
    assert statuses == ["ERROR", "ERROR", "UNSET"]
    assert seen.metric("messaging.client.sent.messages") == {"SendFailed": 2, "FLUSH_DISK_TIMEOUT": 1}


@pytest.mark.parametrize("plain", [False, True])
@on_loop
async def test_a_handler_continues_the_trace_of_its_message(seen: Seen, plain: bool) -> None:
    cluster, inside = FakeCluster(), []
    async with Producer("p", session=cluster.session()) as producer:
        await producer.send(ONE)
    (send,) = seen.spans("send T")
    cluster.store(b"x", **properties(cluster))
    cluster.store(b"y")

    def handled(messages: list[ReceivedMessage]) -> Action:
        inside.append(trace.get_current_span().get_span_context())
        return Action.LATER if messages[0].body == b"y" else Action.SUCCESS

    async def coroutine(messages: list[ReceivedMessage]) -> Action:
        return handled(messages)

    consumer = PushConsumer("g", handled if plain else coroutine, session=cluster.session())
    consumer.subscribe("T")
    async with consumer:
        await until(lambda: len(seen.spans("process T")) == 2, "both calls")
    by_outcome = {span.status.status_code.name: span for span in seen.spans("process T")}
    first, failed = by_outcome["UNSET"], by_outcome["ERROR"]
    assert send.context is not None
    assert first.context is not None
    assert first.context.trace_id == send.context.trace_id
    assert first.parent is not None
    assert first.parent.span_id == send.context.span_id
    assert [link.context.span_id for link in first.links] == [send.context.span_id]
    assert first.context in inside
    assert failed.parent is None
    assert (first.attributes or {})["messaging.message.body.size"] == 1
    assert seen.metric("messaging.client.consumed.messages") == {"success": 1, "later": 1}
    assert seen.metric("messaging.process.duration") == {"success": 1, "later": 1}
