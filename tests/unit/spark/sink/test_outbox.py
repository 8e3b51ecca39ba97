"""One budget per message; answers that are final stay final; nothing that was stored is sent again."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tandemq.client.bulk import Ack
from tandemq.codec.codes import ResponseCode
from tandemq.errors import ConnectionLost, NoRoute, ReplyError
from tandemq.model.topic import QueueRef
from tandemq.spark.options import SinkOptions, parse
from tandemq.spark.sink.outbox import NotDelivered, Outbox, Outgoing
from tandemq.spark.sink.routes import NoMaster

OK = ResponseCode.SUCCESS
QUEUE = QueueRef("t", "broker-a", 0)


class Clock:
    """Stands still except while somebody waits."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return int(self.now * 1000)

    def wait(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class Broker:
    """Answers as listed, in the order of the sends; stores what it answers with a stored code."""

    answers: Iterator[Any]
    stored: list[str] = field(default_factory=list)
    links: int = 0
    masters: Iterator[Any] = field(default_factory=lambda: iter(()))

    def master(self, broker: str, *, fresh: bool = False) -> str:
        problem = next(self.masters, None) if fresh else None
        if problem is not None:
            raise problem
        return "a:1"

    def connect(self, address: str) -> "Link":
        self.links += 1
        return Link(self)


class Link:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._answers: deque[Any] = deque()

    def post(self, topic: str, queue_id: int, batch: bytes, **rest: Any) -> None:
        answer = next(self._broker.answers)
        if answer in (OK, ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.FLUSH_SLAVE_TIMEOUT, "stored, then lost"):
            self._broker.stored.append(batch.decode())
        self._answers.append(answer)

    def answer(self) -> Ack:
        answer = self._answers.popleft()
        if isinstance(answer, Exception):
            raise answer
        if answer == "stored, then lost":
            raise ConnectionLost("gone")
        return Ack(None, answer, 0, 0, "id")

    def close(self) -> None:
        pass


def outbox(broker: Broker, clock: Clock, **given: str) -> Outbox:
    options = parse(SinkOptions, {"nameserver": "n:1", "topic": "t", "retries": "2", "inFlight": "3", **given})
    return Outbox(options, broker, clock=clock, connect=broker.connect, wait=clock.wait)  # type: ignore[arg-type]


def deliver(broker: Broker, texts: str, clock: Clock | None = None, **given: str) -> Outbox:
    made = outbox(broker, clock or Clock(), **given)
    for text in texts:
        made.send(Outgoing(QUEUE, text.encode(), 10, 0, ""))
    made.flush()
    return made


def refusal(code: int) -> ReplyError:
    return ReplyError(code, "no")


def test_what_is_stored_is_let_go() -> None:
    broker = Broker(iter([OK] * 5))
    sent = deliver(broker, "abcde").sent
    assert broker.stored == list("abcde")
    assert (sent.messages, broker.links) == (50, 1)


def test_only_what_was_refused_is_sent_again() -> None:
    """The sends around it have answers of their own: they are stored, and stay stored once."""
    broker = Broker(iter([OK, refusal(ResponseCode.SYSTEM_BUSY), OK, OK, OK]))
    deliver(broker, "abcd")
    assert broker.stored == ["a", "c", "d", "b"]
    assert broker.links == 1


def test_a_refusal_that_stays_uses_up_the_tries() -> None:
    """Retries are counted per message, not per round, and the others are not repeated with it."""
    never = refusal(ResponseCode.SYSTEM_ERROR)
    broker = Broker(iter([OK, never, OK, never, never]))
    with pytest.raises(NotDelivered, match=r"10 messages for 't', queue 0, after 3 tries \(retries=2\): no"):
        deliver(broker, "abc")
    assert broker.stored == ["a", "c"]


def test_final_refusals_are_final_and_the_rest_is_counted() -> None:
    """The error says what became of every message, also of those answered after the bad one."""
    broker = Broker(iter([OK, refusal(ResponseCode.INVALID_PARAMETER), OK]))
    with pytest.raises(NotDelivered) as caught:
        deliver(broker, "abc")
    assert "20 are stored, 10 were refused." in str(caught.value)
    assert caught.value.code == ResponseCode.INVALID_PARAMETER
    assert broker.stored == ["a", "c"]


def test_stored_without_all_copies_is_an_error_but_not_sent_again() -> None:
    broker = Broker(iter([OK, ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.SLAVE_NOT_AVAILABLE]))
    with pytest.raises(NotDelivered, match=r"copies=2.*10 are stored, 20 are stored with fewer copies than asked"):
        deliver(broker, "abc", copies="2")
    assert broker.stored == ["a", "b", "c"]


def test_whoever_asks_for_no_copies_gets_none() -> None:
    """As a producer of RocketMQ: stored is stored."""
    broker = Broker(iter([ResponseCode.SLAVE_NOT_AVAILABLE] * 2))
    deliver(broker, "ab")
    assert broker.stored == ["a", "b"]


def test_exactly_once_asks_again_until_the_copies_are_made() -> None:
    """The broker stores no repeat, so asking again is how to wait."""
    broker = Broker(iter([ResponseCode.FLUSH_SLAVE_TIMEOUT, OK, OK]))
    deliver(broker, "ab", delivery="exactly_once")
    assert broker.stored == ["a", "b", "a"]


def test_a_lost_connection_repeats_only_what_has_no_answer() -> None:
    """In order, to whoever is the master by then."""
    broker = Broker(iter([OK, "stored, then lost", OK, OK, OK]))
    deliver(broker, "abc")
    assert broker.stored == ["a", "b", "c", "b", "c"]
    assert broker.links == 2


def test_waiting_for_a_master_costs_time_but_no_tries() -> None:
    clock = Clock()
    broker = Broker(iter(["stored, then lost", OK]), masters=iter([NoMaster("none")] * 8))
    deliver(broker, "a", clock)
    assert broker.stored == ["a", "a"]
    assert clock.now > 30


def test_the_time_of_a_message_has_an_end() -> None:
    clock = Clock()
    broker = Broker(iter(["stored, then lost"]), masters=iter([NoMaster("no master")] * 100))
    with pytest.raises(NotDelivered, match=r"after 9 s \(deliveryTimeoutMs=9000\): no master.*10 were sent without an"):
        deliver(broker, "a", clock, deliveryTimeoutMs="9000")
    assert clock.now == 9


def test_a_route_that_is_gone_is_waited_for_too() -> None:
    broker = Broker(iter([OK]))
    made = outbox(broker, Clock())
    problems = iter([NoRoute("gone"), None])
    broker.master = lambda name, *, fresh=False: _raised(next(problems))  # type: ignore[method-assign]
    made.send(Outgoing(QUEUE, b"a", 1, 0, ""))
    made.flush()
    assert broker.stored == ["a"]


def _raised(problem: Exception | None) -> str:
    if problem is not None:
        raise problem
    return "a:1"


def test_messages_may_be_slowed_down() -> None:
    """maxRate counts messages, over all sends of a task."""
    clock = Clock()
    deliver(Broker(iter([OK] * 40)), "a" * 40, clock, maxRate="100")
    assert clock.now == pytest.approx(3, abs=1.1)
