"""Everything a task sends: a send is let go only when it is acknowledged, and every message has one budget.

Per broker group there is one connection with several sends under way, answered in order. A message may be sent
`retries` + 1 times within `deliveryTimeoutMs`; waiting for a new master costs time but no tries.

    the answer                           what happens
    stored                               done
    stored, but fewer copies than asked  an error if `copies` asks for more, and never sent again; with exactly_once the
                                         broker stores no repeat, so it is asked again until the copies are made
    refused for the moment               sent again after a pause, alone: the sends around it have answers of their own
    refused for good                     an error at once
    none, the connection broke           sent again to whoever is the master by then; it may be stored twice then, and
                                         the keys say so (`idempotent_key`)

The error says how many messages are stored, refused, unanswered and unsent.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import NamedTuple, Protocol

from tandemq.client.bulk import Ack, BatchSender
from tandemq.clock import Clock, SystemClock
from tandemq.codec.codes import ResponseCode
from tandemq.errors import NoRoute, RemotingError, ReplyError, TandemError
from tandemq.model.topic import QueueRef
from tandemq.spark.options import Delivery, SinkOptions
from tandemq.spark.runtime.pause import pause
from tandemq.spark.runtime.task_log import note
from tandemq.spark.sink.routes import NEW_TOPIC_QUEUES_MAX, WriteRoutes

_RETRIED = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.GO_AWAY,
    }
)
"""Refusals that may end otherwise next time; all others are final."""
WAIT_STORED = "WAIT\x01true\x02"


class State(Enum):
    """What is known of a send that is not done."""

    UNSENT = auto()
    UNANSWERED = auto()
    """It may be stored."""
    REFUSED = auto()
    SHORT = auto()
    """Stored with fewer copies than asked."""


class NotDelivered(TandemError):
    """A message was not stored as asked; the text says what was stored and what was not."""

    def __init__(self, text: str, code: int = -1) -> None:
        super().__init__(text)
        self.code = code
        """The broker's last answer; -1 if there was none."""


@dataclass(slots=True)
class Outgoing:
    """One send: a batch, or a single message."""

    queue: QueueRef
    data: bytes
    count: int
    sys_flag: int
    properties: str
    single: bool = False
    tries: int = 0
    state: State = State.UNSENT
    deadline: float = 0.0
    """When its time is used up; set when it is first given to the outbox."""


class Sent(NamedTuple):
    """What a task wrote."""

    messages: int
    size: int


class Tally:
    """Messages of a task by what became of them."""

    def __init__(self) -> None:
        self.stored = 0
        self.by_state = dict.fromkeys(State, 0)

    def __str__(self) -> str:
        texts = {
            State.SHORT: "are stored with fewer copies than asked",
            State.REFUSED: "were refused",
            State.UNANSWERED: "were sent without an answer and may be stored",
            State.UNSENT: "were not sent",
        }
        rest = [f"{self.by_state[state]:,} {text}" for state, text in texts.items() if self.by_state[state]]
        return ", ".join([f"{self.stored:,} are stored", *rest])


class SendLink(Protocol):
    """What a lane needs of `BatchSender`."""

    def post(
        self, topic: str, queue_id: int, batch: bytes, *, properties: str, sys_flag: int, queues: int, single: bool
    ) -> None: ...

    def answer(self) -> Ack: ...

    def close(self) -> object: ...


class Outbox:
    """All sends of one task. Not for threads."""

    def __init__(
        self,
        options: SinkOptions,
        routes: WriteRoutes,
        *,
        clock: Clock | None = None,
        connect: Callable[[str], SendLink] | None = None,
        wait: Callable[[float], None] = pause,
    ) -> None:
        self._options = options
        self.routes = routes
        self._clock = clock or SystemClock()
        self._connect = connect or self._connected
        self._wait = wait
        self._lanes: dict[str, _Lane] = {}
        self._rate = _Rate(options.max_rate, self._clock, wait)
        self.sent = Sent(0, 0)
        self.on_ack: Callable[[Outgoing, Ack], None] | None = None
        """Called with each acknowledged send, in order."""

    def _connected(self, address: str) -> SendLink:
        return BatchSender(
            address,
            group=self._options.producer_group,
            timeout=self._options.request_timeout_ms / 1000,
            depth=self._options.in_flight,
            credentials=self.routes.access.credentials,
            tls=self.routes.access.tls,
            clock=self._clock,
        )

    def send(self, outgoing: Outgoing) -> None:
        """Sends when there is room; raises NotDelivered for any send, this or an earlier one, that has failed."""
        self._rate.take(outgoing.count)
        broker = outgoing.queue.broker_name
        if broker not in self._lanes:
            self._lanes[broker] = _Lane(self, broker)
        self._lanes[broker].send(outgoing)
        self.sent = Sent(self.sent.messages + outgoing.count, self.sent.size + len(outgoing.data))

    def flush(self) -> None:
        """Returns when every send was acknowledged as required."""
        for lane in self._lanes.values():
            lane.flush()

    def close(self) -> None:
        for lane in self._lanes.values():
            lane.close()
        self._lanes.clear()

    def tally(self) -> Tally:
        """Returns what became of the messages so far."""
        total = Tally()
        for lane in self._lanes.values():
            lane.count(total)
        return total

    def settle(self) -> None:
        """Takes the answers that are still on their way, so that an error can say what was stored."""
        for lane in self._lanes.values():
            lane.settle()


def send_once(options: SinkOptions, routes: WriteRoutes, outgoing: Outgoing) -> Ack:
    """Sends one message to a topic of the sink's own, which is made if need be; returns the acknowledgement."""
    acks: list[Ack] = []
    for is_second_try in (False, True):
        outbox = Outbox(options, routes)
        outbox.on_ack = lambda _, ack: acks.append(ack)
        try:
            outbox.send(replace(outgoing))
            outbox.flush()
            break
        except NotDelivered as error:
            if is_second_try or error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            routes.make_topic(outgoing.queue.broker_name, outgoing.queue.topic)
        finally:
            outbox.close()
    return acks[0]


class _Lane:
    """Everything on its way to one broker group."""

    def __init__(self, owner: Outbox, broker: str) -> None:
        self._owner = owner
        self._broker = broker
        self._options = owner._options
        self._clock = owner._clock
        self._link: SendLink | None = None
        self._waiting: deque[Outgoing] = deque()
        """To be sent, or sent again, in this order."""
        self._under_way: deque[Outgoing] = deque()
        self._refused: list[Outgoing] = []
        """CannotBeExact for the moment, or stored without all copies, in order: asked again."""
        self._reason: Exception | None = None
        """The last failure."""
        self._pauses = 0
        self._needs_master = False
        self._given_up: list[Outgoing] = []
        """Failed for good."""
        self._stored = 0
        self._told_of_copies = False

    def send(self, outgoing: Outgoing) -> None:
        outgoing.deadline = self._clock.monotonic() + self._options.delivery_timeout_ms / 1000
        self._waiting.append(outgoing)
        self._work(all_answers=False)

    def flush(self) -> None:
        self._work(all_answers=True)

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    def count(self, total: Tally) -> None:
        """Adds this lane's messages to a tally."""
        total.stored += self._stored
        for outgoing in (*self._given_up, *self._refused, *self._under_way, *self._waiting):
            total.by_state[outgoing.state] += outgoing.count

    def settle(self) -> None:
        try:
            while self._under_way:
                self._take_answer(is_last_word=True)
        except (RemotingError, OSError):
            self.close()

    def _work(self, *, all_answers: bool) -> None:
        """Sends what waits, and takes answers: as many as are needed for room, or all."""
        while self._waiting or (all_answers and self._under_way):
            try:
                self._post_waiting()
                while all_answers and self._under_way and not self._refused:
                    self._take_answer()
                if self._refused:
                    self._gather_refused()
            except (RemotingError, NoRoute, OSError) as error:
                self._lost(error)

    def _post_waiting(self) -> None:
        while self._waiting and not self._refused:
            if len(self._under_way) >= self._options.in_flight:
                self._take_answer()
                continue
            outgoing = self._waiting[0]
            self._check_budget(outgoing)
            link = self._connected()
            outgoing.tries += 1
            outgoing.state = State.UNANSWERED
            link.post(
                outgoing.queue.topic,
                outgoing.queue.queue_id,
                outgoing.data,
                properties=outgoing.properties,
                sys_flag=outgoing.sys_flag,
                queues=NEW_TOPIC_QUEUES_MAX,
                single=outgoing.single,
            )
            self._under_way.append(self._waiting.popleft())

    def _connected(self) -> SendLink:
        if self._link is None:
            self._link = self._owner._connect(self._owner.routes.master(self._broker, fresh=self._needs_master))
            self._needs_master = False
        return self._link

    def _take_answer(self, *, is_last_word: bool = False) -> None:
        """Takes the answer to the oldest send. `is_last_word`: nothing is sent any more, so only count it."""
        assert self._link is not None
        try:
            ack = self._link.answer()
        except ReplyError as refusal:
            self._take_refusal(self._under_way.popleft(), refusal, is_last_word)
            return
        outgoing = self._under_way.popleft()
        if ack.status != ResponseCode.SUCCESS and not self._is_enough(outgoing, ack, is_last_word):
            return
        self._stored += outgoing.count
        self._pauses = 0
        if self._owner.on_ack is not None:
            self._owner.on_ack(outgoing, ack)

    def _is_enough(self, outgoing: Outgoing, ack: Ack, is_last_word: bool) -> bool:
        """Returns whether a send that was stored without all its copies counts as done."""
        text = f"{self._broker} stored {outgoing.count} messages, but not all copies: {ResponseCode(ack.status).name}"
        is_exact = self._options.delivery is Delivery.EXACTLY_ONCE
        if is_exact or self._options.copies:
            outgoing.state = State.SHORT
            (self._refused if is_exact else self._given_up).append(outgoing)
            self._reason = ReplyError(ack.status, text)
            if not is_exact and not is_last_word:
                raise self._failure(f"{text} (copies={self._options.copies})")
            return False
        if not self._told_of_copies:
            note(text)
            self._told_of_copies = True
        return True

    def _take_refusal(self, outgoing: Outgoing, refusal: ReplyError, is_last_word: bool) -> None:
        self._reason = refusal
        outgoing.state = State.REFUSED
        if refusal.code in _RETRIED:
            self._refused.append(outgoing)
            return
        self._given_up.append(outgoing)
        if not is_last_word:
            raise self._failure(
                f"{self._broker} refuses {outgoing.count} messages for {outgoing.queue.topic!r}, queue "
                f"{outgoing.queue.queue_id}: {refusal}"
            )

    def _gather_refused(self) -> None:
        """Takes all answers first, so that what was refused is sent again in its order, before what comes after it."""
        while self._under_way:
            self._take_answer()
        again, self._refused = self._refused, []
        self._waiting.extendleft(reversed(again))
        self._check_budget(self._waiting[0])
        if isinstance(self._reason, ReplyError) and self._reason.code == ResponseCode.SERVICE_NOT_AVAILABLE:
            self._forget_master()
        note(f"{self._broker}: {self._reason}; sending {len(again)} refused sends again")
        self._pause()

    def _lost(self, error: Exception) -> None:
        """Sends again, in order, what has no answer: the connection is gone, or there is no master."""
        self._reason = error
        again = [*self._refused, *self._under_way]
        self._refused, self._under_way = [], deque()
        self._waiting.extendleft(reversed(again))
        self._forget_master()
        self._check_budget(self._waiting[0])
        note(f"{self._broker}: {error}; {len(self._waiting)} sends wait for an answer")
        self._pause()

    def _forget_master(self) -> None:
        self.close()
        self._needs_master = True

    def _pause(self) -> None:
        """Waits before the next try; longer each time, but not past the budget."""
        left = self._waiting[0].deadline - self._clock.monotonic()
        seconds = min(10.0, self._options.retry_interval_ms / 1000 * 2 ** min(self._pauses, 10))
        self._pauses += 1
        self._owner._wait(max(0.0, min(seconds, left)))

    def _check_budget(self, outgoing: Outgoing) -> None:
        """Raises NotDelivered when the tries or the time of a send are used up."""
        if not outgoing.tries and self._reason is None:
            return
        spent_ms = self._options.delivery_timeout_ms - (outgoing.deadline - self._clock.monotonic()) * 1000
        if outgoing.tries > self._options.retries:
            why = f"{outgoing.tries} tries (retries={self._options.retries})"
        elif spent_ms >= self._options.delivery_timeout_ms:
            why = f"{spent_ms / 1000:.0f} s (deliveryTimeoutMs={self._options.delivery_timeout_ms})"
        else:
            return
        raise self._failure(
            f"{self._broker} has not acknowledged {outgoing.count} messages for {outgoing.queue.topic!r}, queue "
            f"{outgoing.queue.queue_id}, after {why}: {self._reason}"
        )

    def _failure(self, text: str) -> NotDelivered:
        self._owner.settle()
        code = self._reason.code if isinstance(self._reason, ReplyError) else -1
        return NotDelivered(f"{text}. Of the messages of this task {self._owner.tally()}.", code)


class _Rate:
    """At most so many messages per second, smoothed over a second."""

    def __init__(self, per_second: int, clock: Clock, wait: Callable[[float], None]) -> None:
        self._per_second = per_second
        self._clock = clock
        self._wait = wait
        self._free_at = clock.monotonic()

    def take(self, count: int) -> None:
        if not self._per_second:
            return
        now = self._clock.monotonic()
        self._free_at = max(self._free_at, now - 1.0) + count / self._per_second
        if self._free_at > now:
            self._wait(self._free_at - now)
