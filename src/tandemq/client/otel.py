"""OpenTelemetry spans and metrics of producers and consumers; needs the extra `otel` (`pip install 'tandemq[otel]'`).

    from tandemq.client import otel

    otel.instrument()                # clients made from now on report to the providers that the program has set

Each send is a span of kind PRODUCER, each call of a listener one of kind CONSUMER. The trace context travels in the
message's properties (`traceparent`, as the configured propagator writes it), so that a handler's span is linked to the
send that caused it; the handler of a single message continues the trace. Names and attributes follow OpenTelemetry's
conventions for messaging, system `rocketmq`.

| metric | unit | meaning |
|---|---|---|
| `messaging.client.sent.messages` | {message} | messages sent, by topic and outcome |
| `messaging.client.operation.duration` | s | how long a send took |
| `messaging.client.consumed.messages` | {message} | messages handed to listeners, by topic and outcome |
| `messaging.process.duration` | s | how long a call of a listener took |
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

try:
    from opentelemetry import context, metrics, propagate, trace
    from opentelemetry.trace import Link, Span, SpanKind, StatusCode
except ImportError as error:  # pragma: no cover
    raise ImportError("OpenTelemetry is missing: pip install 'tandemq[otel]'") from error

from tandemq.client.message import ReceivedMessage, SendResult
from tandemq.client.telemetry import set_telemetry
from tandemq.clock import Clock, SystemClock
from tandemq.model.message import Message

SYSTEM = "rocketmq"
LINKS_MAX = 128
"""Links of one span: as many as the SDK keeps."""

Attributes = dict[str, str | int]


def instrument(
    *,
    tracer_provider: trace.TracerProvider | None = None,
    meter_provider: metrics.MeterProvider | None = None,
    clock: Clock | None = None,
) -> None:
    """Makes clients created from now on report; without arguments to the program's global providers.

    otel.instrument()
    async with Producer("shop", namesrv="127.0.0.1:9876") as producer:
        await producer.send(Message(topic="orders", body=b"paid"))
    otel.uninstrument()
    """
    set_telemetry(OpenTelemetry(tracer_provider, meter_provider, clock or SystemClock()))


def uninstrument() -> None:
    """Makes clients created from now on report nothing."""
    set_telemetry(None)


class OpenTelemetry:
    """Reports to OpenTelemetry; see the module's text."""

    def __init__(
        self,
        tracer_provider: trace.TracerProvider | None,
        meter_provider: metrics.MeterProvider | None,
        clock: Clock,
    ) -> None:
        self.tracer = trace.get_tracer("tandemq.client", tracer_provider=tracer_provider)
        meter = metrics.get_meter("tandemq.client", meter_provider=meter_provider)
        self.clock = clock
        self.sent_count = meter.create_counter("messaging.client.sent.messages", "{message}", "Messages sent")
        self.sent_duration = meter.create_histogram("messaging.client.operation.duration", "s", "How long a send took")
        self.consumed_count = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Messages handed to listeners"
        )
        self.handle_duration = meter.create_histogram(
            "messaging.process.duration", "s", "How long a call of a listener took"
        )

    @contextmanager
    def sending(self, group: str, messages: Sequence[Message]) -> "Iterator[_Sending]":
        span = _Sending(self, group, messages)
        try:
            with trace.use_span(span.span, record_exception=False, set_status_on_exception=False):
                yield span
        except BaseException as error:
            span.failed(error)
            raise
        finally:
            span.end()

    def submitted(self, group: str, message: Message) -> "_Submitted":
        return _Submitted(self, group, message)

    @contextmanager
    def handling(self, group: str, messages: Sequence[ReceivedMessage]) -> "Iterator[_Handling]":
        call = _Handling(self, group, messages)
        try:
            with trace.use_span(call.span, record_exception=False, set_status_on_exception=False):
                yield call
        finally:
            call.end()


class _Sending:
    """The span of one send."""

    def __init__(self, owner: OpenTelemetry, group: str, messages: Sequence[Message]) -> None:
        self._owner = owner
        self._count = len(messages)
        self._topic = messages[0].topic
        self._outcome = "ok"
        attributes = _attributes("send", self._topic, self._count)
        attributes["messaging.rocketmq.client_group"] = group
        _describe(attributes, messages[0].tags, " ".join(messages[0].keys), len(messages[0].body), self._count)
        self.span: Span = owner.tracer.start_span(f"send {self._topic}", kind=SpanKind.PRODUCER, attributes=attributes)
        self._started = owner.clock.monotonic()
        carrier: dict[str, str] = {}
        propagate.inject(carrier, trace.set_span_in_context(self.span))
        self.messages: Sequence[Message] = [replace(m, properties={**m.properties, **carrier}) for m in messages]

    def sent(self, results: Sequence[SendResult]) -> None:
        first = results[0]
        self.span.set_attribute("server.address", first.queue.broker_name)
        self.span.set_attribute("messaging.destination.partition.id", str(first.queue.queue_id))
        if self._count == 1:
            self.span.set_attribute("messaging.message.id", first.message_id)
        missing = next((result for result in results if not result.ok), None)
        if missing is not None:
            self._outcome = missing.status.name
            self.span.set_attribute("error.type", missing.status.name)

    def failed(self, error: BaseException) -> None:
        self._outcome = type(error).__name__
        _failed(self.span, error)

    def end(self) -> None:
        attributes = _attributes("send", self._topic) | {"outcome": self._outcome}
        self._owner.sent_count.add(self._count, attributes)
        self._owner.sent_duration.record(self._owner.clock.monotonic() - self._started, attributes)
        self.span.end()


class _Submitted(_Sending):
    """The span of a submitted message: its future ends it."""

    def __init__(self, owner: OpenTelemetry, group: str, message: Message) -> None:
        super().__init__(owner, group, [message])
        self.message = self.messages[0]

    def ended(self, future: "asyncio.Future[SendResult]", /) -> None:
        if future.cancelled():
            self.failed(asyncio.CancelledError())
        elif (error := future.exception()) is not None:
            self.failed(error)
        else:
            self.sent([future.result()])
        self.end()


class _Handling:
    """The span of one call of a listener."""

    def __init__(self, owner: OpenTelemetry, group: str, messages: Sequence[ReceivedMessage]) -> None:
        self._owner = owner
        self._count = len(messages)
        self._topic = messages[0].topic
        self._outcome = "cancelled"
        parents = [propagate.extract(message.properties) for message in messages[:LINKS_MAX]]
        senders = [trace.get_current_span(parent).get_span_context() for parent in parents]
        attributes = _attributes("process", self._topic, self._count)
        attributes["messaging.consumer.group.name"] = group
        first = messages[0]
        _describe(attributes, first.tags, " ".join(first.keys), len(first.stored.body), self._count)
        if self._count == 1:
            attributes["messaging.message.id"] = first.message_id
            attributes["messaging.destination.partition.id"] = str(first.queue_id)
            attributes["messaging.rocketmq.message.delivery_attempt"] = first.reconsume_times + 1
        self.span: Span = owner.tracer.start_span(
            f"process {self._topic}",
            # The handler of one message continues its trace; that of several belongs to none of them alone.
            context=parents[0] if self._count == 1 else context.Context(),
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            links=[Link(sender) for sender in senders if sender.is_valid],
        )
        self._started = owner.clock.monotonic()

    def handled(self, outcome: str) -> None:
        self._outcome = outcome
        if outcome != "success":
            self.span.set_status(StatusCode.ERROR, outcome)
            self.span.set_attribute("error.type", outcome)

    def end(self) -> None:
        attributes = _attributes("process", self._topic) | {"outcome": self._outcome}
        self._owner.consumed_count.add(self._count, attributes)
        self._owner.handle_duration.record(self._owner.clock.monotonic() - self._started, attributes)
        self.span.end()


def _attributes(operation: str, topic: str, count: int = 1) -> Attributes:
    found: Attributes = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": topic,
    }
    if count > 1:
        found["messaging.batch.message_count"] = count
    return found


def _describe(attributes: Attributes, tags: str, keys: str, size: int, count: int) -> None:
    """Adds what a single message is known by."""
    if count > 1:
        return
    described: Mapping[str, str | int] = {
        "messaging.rocketmq.message.tag": tags,
        "messaging.rocketmq.message.keys": keys,
        "messaging.message.body.size": size,
    }
    attributes.update({name: value for name, value in described.items() if value})


def _failed(span: Span, error: BaseException) -> None:
    span.set_attribute("error.type", type(error).__name__)
    span.set_status(StatusCode.ERROR, str(error))
