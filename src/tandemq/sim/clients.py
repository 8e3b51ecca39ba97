"""Clients of a simulated broker: a consumer group, producers of delayed and transactional messages, and what they are
owed.

What the last master has in its log must have come to its end: each delayed message and each timer was delivered, each
half message whose producer says commit was, none that it rolled back; and the group has consumed all of it, however
often its consumer began anew at the offset that a broker told.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, Final, cast

from tandemq.broker.new_message import NewMessage
from tandemq.broker.record_slices import messages_of
from tandemq.broker.services.timers import DELAY_MS, to_timer
from tandemq.codec.codes import RequestCode
from tandemq.codec.command import Command, decode_command
from tandemq.codec.frame import FrameReader
from tandemq.errors import TandemError
from tandemq.formats.envelope import to_half, to_schedule
from tandemq.model.ack_level import AckLevel
from tandemq.model.message import (
    DELAY,
    PRODUCER_GROUP,
    TRANSACTION_COMMIT,
    TRANSACTION_ROLLBACK,
    UNIQUE_KEY,
    StoredMessage,
)
from tandemq.model.topic import SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC
from tandemq.remoting.connection import Connection
from tandemq.replication.acks import PutStatus
from tandemq.sim.ledger import Violation
from tandemq.sim.network import EventQueue
from tandemq.sim.services import DELAYS_MS
from tandemq.sim.serving_node import Acked, ServingNode, born, runs
from tandemq.store.message_store import Appended

TOPIC: Final = "t"
QUEUES: Final = 3
CONSUMERS: Final = "consumers"
PRODUCERS: Final = "producers"
TIMER_MAX_MS: Final = 800
DELAY_MAX_MS: Final = 3_600_000


@dataclass(slots=True)
class Half:
    """What a producer knows of a transaction."""

    body: bytes
    commits: bool
    """What came out of its local transaction, once that has run."""
    is_known: bool = False
    """Whether its half message was acknowledged, so that the local transaction ran."""

    @property
    def decision(self) -> int:
        return TRANSACTION_COMMIT if self.commits and self.is_known else TRANSACTION_ROLLBACK


class Clients:
    """All clients of all nodes."""

    def __init__(self, events: EventQueue, random: Random, tell: Callable[[str], None]) -> None:
        self._events, self._random, self._tell = events, random, tell
        self.consumed: set[bytes] = set()
        self.halves: dict[str, Half] = {}
        self.gone: set[bytes] = set()
        """What consumers could read until retention took it."""

    # --- producers --------------------------------------------------------------------------------------------------

    def send(self, node: ServingNode, body: bytes, level: AckLevel, done: Acked) -> None:
        """Sends a message of any kind."""
        random = self._random
        kind = random.choices(("plain", "delay", "timer", "half"), (5, 2, 1, 2))[0]
        queue_id = random.randrange(QUEUES)
        message = NewMessage(topic=TOPIC, queue_id=queue_id, body=body, properties={}, **born(node))
        if kind == "delay":
            message.properties = {DELAY: str(random.randint(1, len(DELAYS_MS)))}
            message.move(to_schedule(*message.place, len(DELAYS_MS)))
        elif kind == "timer":
            message.properties = {DELAY_MS: str(random.randrange(TIMER_MAX_MS))}
            timed = to_timer(*message.place, node.clock.wall_ms(), DELAY_MAX_MS)
            if timed is not None:
                message.move(timed)
        elif kind == "half":
            done = self._half(node, message, done)
        node.put(message, level, done)

    def _half(self, node: ServingNode, message: NewMessage, done: Acked) -> Acked:
        """Makes a half message of it; once it is acknowledged its producer decides, and perhaps says so."""
        random, body = self._random, bytes(message.body)
        key = f"K{len(self.halves)}"
        half = self.halves[key] = Half(body, commits=random.random() < 0.7)
        message.properties = {UNIQUE_KEY: key, PRODUCER_GROUP: PRODUCERS}
        message.move(to_half(*message.place))
        says_so = random.random() < 0.6

        def acked(status: PutStatus, reason: str, appended: Appended) -> None:
            done(status, reason, appended)
            if status is PutStatus.PUT_OK:
                half.is_known = True
                if says_so:
                    at = appended.queue_offset, appended.physical_offset
                    self._say(node, half, at, is_answer=False)

        return acked

    def _say(self, node: ServingNode, half: Half, at: tuple[int, int], *, is_answer: bool) -> None:
        """Commits or rolls back, a moment later; it may be lost on the way."""
        if self._random.random() < 0.1:
            return
        ext = {
            "producerGroup": PRODUCERS,
            "tranStateTableOffset": str(at[0]),
            "commitLogOffset": str(at[1]),
            "commitOrRollback": str(half.decision),
            "fromTransactionCheck": str(is_answer).lower(),
        }

        async def end() -> None:
            try:
                await node.serve(Command(RequestCode.END_TRANSACTION, ext))
            except TandemError:
                return  # it asks again

        def arrive() -> None:
            if runs(node):
                node.begin(end, "end of a transaction")

        self._events.after(self._random.uniform(0.0005, 0.05), arrive)

    def connect(self, node: ServingNode) -> None:
        """Connects the producers to a process that has just started, so that it may ask them."""
        link = cast("Connection", _Producer(self, node))
        node.services.members.register_producer(PRODUCERS, link, "p", "PYTHON", 0, node.clock.monotonic())

    def asked(self, node: ServingNode, ext: dict[str, str]) -> None:
        """Answers what a broker asks about a half message."""
        half = self.halves[ext["transactionId"]]
        self._say(node, half, (int(ext["tranStateTableOffset"]), int(ext["commitLogOffset"])), is_answer=True)

    # --- the consumer -----------------------------------------------------------------------------------------------

    def consume(self, node: ServingNode) -> None:
        """A consumer begins anew: it goes on where the broker says its group is, and tells how far it came."""
        if node.role == "master" and node.services.writer.refusal is not None:
            return
        for queue_id in range(QUEUES):
            offset = self._offset(node, queue_id)
            found = node.store.reader.get(TOPIC, queue_id, offset, 8, 1 << 20, None)
            for message in messages_of(found.slices):
                self.consumed.add(bytes(message.body))
                offset = message.queue_offset + 1
            if found.slices and self._random.random() < 0.8:
                node.services.offsets.commit(CONSUMERS, TOPIC, queue_id, offset)

    def _offset(self, node: ServingNode, queue_id: int) -> int:
        offset = node.services.offsets.query(CONSUMERS, TOPIC, queue_id)
        first, last = node.store.reader.queue_range(TOPIC, queue_id)
        return min(max(offset, first), last)

    # --- retention ---------------------------------------------------------------------------------------------------

    def deleted(self, node: ServingNode, before: int, held: list[StoredMessage], readable: set[bytes]) -> None:
        """Checks what retention took from a node that had `held` in its log and showed `readable` to consumers."""
        first = node.store.first_offset
        self.gone |= readable - delivered(node)
        for message in held:
            if message.physical_offset < first and not self.is_settled(message):
                body = bytes(message.body)
                renewed = any(bytes(other.body) == body and other.physical_offset >= first for other in held)
                if body not in readable and body not in self.gone and not renewed:
                    raise Violation(
                        f"{node.name} deleted [{before}, {first}), where message {_name(body)} of {message.topic} waits"
                    )

    def is_settled(self, message: StoredMessage) -> bool:
        """Returns whether nobody has to get a waiting message: it was delivered and is gone, or was rolled back."""
        if bytes(message.body) in self.gone:
            return True
        half = self.halves.get(message.properties.get(UNIQUE_KEY, ""))
        return half is not None and half.decision == TRANSACTION_ROLLBACK

    # --- the reckoning ----------------------------------------------------------------------------------------------

    def owed(self, master: ServingNode) -> str:
        """Returns something that the last master still owes to somebody; empty if nothing.

        Raises Violation for what can't be made good any more.
        """
        there = {bytes(message.body): message for message in _all(master, TOPIC, QUEUES)}
        for half in self.halves.values():
            if half.decision == TRANSACTION_ROLLBACK and half.body in there:
                raise Violation(f"a half message that was rolled back is delivered: {_name(half.body)}")
        for message in waiting(master):
            if bytes(message.body) not in there and not self.is_settled(message):
                return f"{message.topic} {message.queue_id}:{message.queue_offset}, message {_name(message.body)}"
        for queue_id in range(QUEUES):
            offset, last = self._offset(master, queue_id), master.store.reader.queue_range(TOPIC, queue_id)[1]
            if offset < last:
                return f"the group is at {offset} of {last} in queue {queue_id}"
        for body, message in there.items():
            if body not in self.consumed and body not in self.gone:
                raise Violation(f"the group skips message {_name(body)}, {message.queue_id}:{message.queue_offset}")
        return ""


def waiting(node: ServingNode) -> list[StoredMessage]:
    """Returns what lies in a log only to be delivered later, whether or not it was."""
    return [
        *_all(node, SCHEDULE_TOPIC, len(DELAYS_MS)),
        *_all(node, TIMER_TOPIC, 1),
        *_all(node, TRANS_HALF_TOPIC, 1),
    ]


def delivered(node: ServingNode) -> set[bytes]:
    """Returns the bodies of all messages that consumers can read on a node."""
    return {bytes(message.body) for message in _all(node, TOPIC, QUEUES)}


class _Producer:
    """The connection of a process to the producers."""

    peer = "producers"
    is_open = is_writable = True

    def __init__(self, clients: Clients, node: ServingNode) -> None:
        self._clients, self._node = clients, node

    def send(self, data: bytes) -> None:
        """Takes the broker's question."""
        for frame in FrameReader().feed(bytes(data)):
            self._clients.asked(self._node, dict(decode_command(frame).ext))


def _all(node: ServingNode, topic: str, queues: int) -> Iterator[StoredMessage]:
    reader = node.store.reader
    for queue_id in range(queues):
        offset, last = reader.queue_range(topic, queue_id)
        while offset < last:
            found = reader.get(topic, queue_id, offset, 1000, 1 << 24, None)
            yield from messages_of(found.slices)
            if found.next_offset <= offset:
                break
            offset = found.next_offset


def _name(body: Any) -> str:
    """Returns the number that a body begins with."""
    return bytes(body).partition(b" ")[0].decode()
