"""Where producers and consumers report what they do, for tracing and metrics; nothing is reported unless somebody asks.

`tandemq.client.otel` reports to OpenTelemetry. Clients take the telemetry that is set when they are made.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from tandemq.client.message import ReceivedMessage, SendResult
from tandemq.model.message import Message

if TYPE_CHECKING:
    import asyncio


class SendSpan(Protocol):
    """A send under way; leaving its `with` block ends it, with the exception that left the block, if any."""

    messages: Sequence[Message]
    """What to send: the messages that were given, with the trace context among their properties."""

    def sent(self, results: Sequence[SendResult]) -> None:
        """Takes the results of the send."""
        ...


class SubmittedSpan(Protocol):
    """A submitted send; it ends with its future."""

    message: Message

    def ended(self, future: "asyncio.Future[SendResult]", /) -> None:
        """Takes the outcome; a callback for the future."""
        ...


class HandleSpan(Protocol):
    """A call of a listener."""

    def handled(self, outcome: str) -> None:
        """Takes what became of the messages: `success`, `later` or `failed`."""
        ...


class Telemetry(Protocol):
    """What is told to whoever traces and counts."""

    def sending(self, group: str, messages: Sequence[Message]) -> AbstractContextManager[SendSpan]:
        """Opens the span of a send; all messages have the same topic."""
        ...

    def submitted(self, group: str, message: Message) -> SubmittedSpan:
        """Opens the span of a submitted message."""
        ...

    def handling(self, group: str, messages: Sequence[ReceivedMessage]) -> AbstractContextManager[HandleSpan]:
        """Opens the span of a call of a listener."""
        ...


_current: Telemetry | None = None


def set_telemetry(telemetry: Telemetry | None) -> None:
    """Sets what clients made from now on report to; None for nothing."""
    global _current
    _current = telemetry


def current_telemetry() -> Telemetry | None:
    """Returns what clients made now report to."""
    return _current
