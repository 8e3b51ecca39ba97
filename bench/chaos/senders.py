"""Senders of every kind. What was acknowledged with two copies goes into the ledger; what failed is nobody's."""

import asyncio
import random
import time
from collections.abc import Awaitable, Iterable
from typing import Any

from bench.chaos.ledger import Ledger
from bench.chaos.members import TOPICS
from tandemq.client import (
    Attempt,
    Message,
    Producer,
    QueueRef,
    ReceivedMessage,
    SendResult,
    TandemError,
    TransactionProducer,
    TransactionState,
)

COPIES = 2
PAUSE_S = 0.02


class Senders:
    """Sends until it is stopped; counts what failed."""

    def __init__(self, ledger: Ledger, namesrv: str, queues: list[QueueRef], chance: random.Random) -> None:
        self._ledger = ledger
        self._namesrv = namesrv
        self._chance = chance
        self._queues = queues
        self._stopping = False
        self._booked: dict[str, TransactionState] = {}
        self.failed = 0
        self.unsure = 0
        """Stored with a promise missing."""
        self.retried = 0
        """Attempts that failed."""
        self.open = 0
        """Those of them that may have stored their message all the same."""

    async def run(self) -> None:
        async with (
            Producer("chaos-senders", namesrv=self._namesrv) as producer,
            TransactionProducer("chaos-bank", self._check, namesrv=self._namesrv) as bank,
        ):
            plain = [self._plain(producer, kind, topic) for kind, topic in (("C", "concurrent"), ("B", "broadcast"))]
            ordered = [self._one_queue(producer, queue) for queue in self._queues]
            await asyncio.gather(*plain, self._plain(producer, "P", "pull"), *ordered, self._transactions(bank))
            # Transactions whose outcome is open are asked about; the producer has to be there to answer.
            await self._settled.wait()

    _settled: asyncio.Event

    def prepare(self) -> None:
        self._settled = asyncio.Event()

    def stop(self) -> None:
        self._stopping = True

    def leave(self) -> None:
        """Lets the producers close: nothing is open any more."""
        self._settled.set()

    async def _answered(self, ids: list[str], work: Awaitable[Any]) -> list[SendResult]:
        """Returns the results of a send; notes every attempt that may have stored its messages."""
        try:
            answer = await work
        except TandemError as error:
            self.failed += 1
            self._note_attempts(ids, getattr(error, "attempts", ()))
            await asyncio.sleep(self._chance.uniform(0.05, 0.3))
            return []
        results: list[SendResult] = answer if isinstance(answer, list) else [answer]
        for message, result in zip(ids, results, strict=True):
            self._note_attempts([message], result.attempts)
            self._ledger.tried(message, result.status.name)
        self.unsure += sum(not result.ok for result in results)
        return results

    def _note_attempts(self, ids: list[str], attempts: Iterable[Attempt]) -> None:
        for attempt in attempts:
            self.retried += 1
            if attempt.may_be_stored:
                self.open += 1
                for message in ids:
                    self._ledger.tried(message, str(attempt))

    def _note(self, ids: list[str], results: list[SendResult]) -> bool:
        """Returns whether all are acknowledged."""
        for message, result in zip(ids, results, strict=False):
            if result.ok:
                self._ledger.acknowledged(message, time.monotonic())
        return len(results) == len(ids) and all(result.ok for result in results)

    async def _plain(self, producer: Producer, kind: str, topic: str) -> None:
        number = 0
        while not self._stopping:
            count = self._chance.choice((1, 1, 1, 8))
            ids = [f"{kind}-{number + step}" for step in range(count)]
            number += count
            messages = [Message(topic=TOPICS[topic], body=message.encode()) for message in ids]
            if count > 1 and self._chance.random() < 0.5:
                self._note(ids, await self._answered(ids, producer.send_batch(messages, copies=COPIES)))
            else:
                sends = [
                    self._answered([name], producer.send(message, copies=COPIES))
                    for name, message in zip(ids, messages, strict=True)
                ]
                for message, results in zip(ids, await asyncio.gather(*sends), strict=True):
                    self._note([message], results)
            await asyncio.sleep(PAUSE_S * count)

    async def _one_queue(self, producer: Producer, queue: QueueRef) -> None:
        """Sends number after number into one queue, each until it is acknowledged."""
        number = 0
        while not self._stopping:
            message = f"O-{queue.broker_name}-{queue.queue_id}-{number}"
            sent = Message(topic=queue.topic, body=message.encode())
            work = producer.send(sent, queue=queue, copies=COPIES)
            if self._note([message], await self._answered([message], work)):
                number += 1
            await asyncio.sleep(PAUSE_S * 4)

    async def _transactions(self, bank: TransactionProducer) -> None:
        number = 0
        while not self._stopping:
            message = f"T-{number}"
            number += 1
            wanted = self._chance.choice((TransactionState.COMMIT, TransactionState.COMMIT, TransactionState.ROLLBACK))
            told = self._chance.random()

            async def execute(_: Message, message: str = message, wanted: Any = wanted, told: float = told) -> Any:
                self._booked[message] = wanted
                if told < 0.1:
                    raise ConnectionError("after the booking")
                return TransactionState.UNKNOWN if told < 0.2 else wanted

            try:
                sent = Message(topic=TOPICS["booked"], body=message.encode())
                result = await bank.send_in_transaction(sent, execute, copies=COPIES)
            except TandemError as error:
                self.failed += 1
                self._note_attempts([message], getattr(error, "attempts", ()))
                await asyncio.sleep(self._chance.uniform(0.05, 0.3))
                continue
            self._note_attempts([message], result.send_result.attempts)
            self._ledger.tried(message, result.send_result.status.name)
            if not result.send_result.ok:
                self.unsure += 1
                self._booked[message] = TransactionState.ROLLBACK  # as the client told the broker
            if self._booked[message] is TransactionState.COMMIT:
                self._ledger.acknowledged(message, time.monotonic())
            else:
                self._ledger.rolled_back(message)
            await asyncio.sleep(PAUSE_S * 2)

    async def _check(self, message: ReceivedMessage) -> TransactionState:
        if self._chance.random() < 0.1:
            await asyncio.sleep(3.0)  # longer than the broker's interval
        if self._chance.random() < 0.1:
            return TransactionState.UNKNOWN
        state = self._booked.get(message.body.decode(), TransactionState.ROLLBACK)
        if state is TransactionState.COMMIT:  # a broker that has forgotten the first commit makes a second one
            self._ledger.tried(message.body.decode(), "committed when asked")
        return state
