"""TransactionProducer: a message that becomes visible only if the local transaction commits.

The half message is stored first, invisible; then `execute` runs; its outcome goes to the broker. When the outcome is
missing (crash, network, UNKNOWN) the broker asks for it, and `check` answers from the application's own state.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tandemq.client.arguments import check_callable, check_copies
from tandemq.client.background import cancelled
from tandemq.client.config import ClientConfig
from tandemq.client.encode import outgoing
from tandemq.client.message import ReceivedMessage, SendResult, decode_messages
from tandemq.client.plain_call import outcome_of
from tandemq.client.producer import Producer
from tandemq.client.session import Session
from tandemq.codec.codes import RequestCode
from tandemq.codec.command import Command
from tandemq.errors import CodecError, InvalidMessage, TandemError
from tandemq.model import message as names
from tandemq.model.message import (
    TRANSACTION_COMMIT,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    Message,
    parse_offset_message_id,
)

log = logging.getLogger("tandemq.client")


class TransactionState(Enum):
    """The outcome of a local transaction; the value is END_TRANSACTION's commitOrRollback.

    def check(message):
        return TransactionState.COMMIT if is_booked(message.body) else TransactionState.ROLLBACK
    """

    COMMIT = TRANSACTION_COMMIT
    """The message becomes visible to consumers."""
    ROLLBACK = TRANSACTION_ROLLBACK
    """The message is never seen."""
    UNKNOWN = 0
    """The broker asks again later."""


Execute = Callable[[Message], TransactionState | Awaitable[TransactionState]]
"""Runs the local transaction of a message and says how it ended."""
Check = Callable[[ReceivedMessage], TransactionState | Awaitable[TransactionState]]
"""Says how the local transaction of a message ended, long after it ran, perhaps in another process."""

CHECKS_MAX = 256
"""Checks that may run at the same time; more are left to the broker's next round."""


@dataclass(frozen=True, slots=True)
class TransactionResult:
    """How a transaction ended here.

    result = await producer.send_in_transaction(Message(topic="orders", body=b"book me"), book)
    if result.error is not None:
        print("the broker will ask: the transaction raised", result.error)
    """

    send_result: SendResult
    """Where the half message is."""
    state: TransactionState
    """What the broker was told."""
    error: Exception | None = None
    """What `execute` raised, if it did: the state is UNKNOWN then and `check` will decide."""


class TransactionProducer(Producer):
    """A producer whose group answers the broker's questions with `check`.

        booked = set()

        def book(message):
            booked.add(message.body)
            return TransactionState.COMMIT

        def check(message):
            return TransactionState.COMMIT if message.body in booked else TransactionState.ROLLBACK

        async with TransactionProducer("bank", check, namesrv="127.0.0.1:9876") as producer:
            await producer.send_in_transaction(Message(topic="orders", body=b"book me"), book)

    `check` is asked by every broker of the cluster from the start on, also about what an earlier process of the group
    left behind. Plain functions run in threads.
    """

    def __init__(
        self,
        group: str,
        check: Check,
        *,
        namesrv: str | None = None,
        config: ClientConfig | None = None,
        session: Session | None = None,
    ) -> None:
        check_callable(check, "check")
        super().__init__(group, namesrv=namesrv, config=config, session=session)
        self._check_state = check
        self._checks: dict[str, _Question] = {}
        """Checks under way, by transaction."""

    @property
    def needs_all_masters(self) -> bool:
        """True: any master may hold a half message of this group and ask about it."""
        return True

    async def start(self) -> None:
        """Joins the session and tells every master of the cluster that this group can be asked."""
        await super().start()
        self.session.on_push(RequestCode.CHECK_TRANSACTION_STATE, self._asked)
        try:
            await self.session.learn_masters()
        except TandemError as error:
            log.warning("group %s is asked about transactions once name servers answer: %s", self.group, error)
            self.session.alarm()
        self.session.heartbeat_soon()

    async def send_in_transaction(
        self, message: Message, execute: Execute, *, copies: str | int | None = None
    ) -> TransactionResult:
        """Stores the half message, runs `execute`, reports its outcome.

            def book(message):
                return TransactionState.COMMIT

            result = await producer.send_in_transaction(Message(topic="orders", body=b"book me"), book)

        Raises SendFailed if the half message could not be stored. An exception of `execute` leaves the outcome to
        `check`; it is in the result.
        """
        self._check(message, copies=copies)
        check_callable(execute, "execute")
        if message.delay_level:
            raise InvalidMessage(f"delay_level={message.delay_level}: a transactional message can't be delayed")
        extra = [(names.TRANSACTION_PREPARED_FLAG, "true"), (names.PRODUCER_GROUP, self.group)]
        if copies is not None:
            check_copies(copies)
            extra.append((names.ACK_COPIES, str(copies)))
        key = message.properties.get(names.UNIQUE_KEY) or self.session.keys.next(self.session.clock.wall_ms())
        item = outgoing(message, key, self.config, extra=extra)
        item.sys_flag |= TRANSACTION_PREPARED
        async with self._sender.room.place(len(item.body)):
            deadline = self._sender.deadline()
            queues = self._known_queues(message.topic) or await self._queues_by(message.topic, deadline)
            sent = await self._sender.send(item, queues, None, deadline)
        state, error = TransactionState.ROLLBACK, None
        if sent.ok:
            state, error = await _outcome(execute, message)
        # Stored, but without the promised copies or flush: upstream rolls such a half message back, and so do we.
        await self._end(sent, item.unique_key, state)
        return TransactionResult(sent, state, error)

    async def _end(self, sent: SendResult, unique_key: str, state: TransactionState) -> None:
        _, physical_offset = parse_offset_message_id(sent.offset_message_id)
        fields = {
            "topic": sent.queue.topic,
            "producerGroup": self.group,
            "tranStateTableOffset": str(sent.queue_offset),
            "commitLogOffset": str(physical_offset),
            "commitOrRollback": str(state.value),
            "fromTransactionCheck": "false",
            "msgId": unique_key,
            "transactionId": sent.transaction_id or unique_key,
            "bname": sent.queue.broker_name,
        }
        try:
            address = await self.session.master(sent.queue.broker_name, sent.queue.topic)
            await self.session.invoke_oneway(address, RequestCode.END_TRANSACTION, fields)
        except TandemError as error:
            # Not lost: the broker asks for the outcome of a half message that it was told nothing about.
            log.warning("the broker was not told how transaction %s ended: %s", unique_key, error)

    # what brokers ask

    def _asked(self, connection: Any, command: Command) -> None:
        """Takes CHECK_TRANSACTION_STATE, a one-way request: the answer is a request of our own."""
        try:
            message = next(
                decode_messages(
                    bytes(command.body),
                    command.ext.get("bname", ""),
                    body_size_max=self.config.decompressed_size_max,
                )
            )
        except (CodecError, StopIteration) as error:
            log.error("a transaction check from %s can't be read: %s", connection.peer, error)
            return
        if message.properties.get(names.PRODUCER_GROUP) != self.group:
            return
        asked = dict(command.ext)
        key = message.properties.get(names.UNIQUE_KEY) or asked.get("msgId", "")
        if key in self._checks:
            # The broker asks again before `check` has answered, and has put the half message at a new place:
            # one answer, for the newest place, settles it once.
            self._checks[key].newest(connection, asked)
            return
        if len(self._checks) >= CHECKS_MAX:
            log.warning(
                "group %s: %d checks are under way, the broker asks again about %s", self.group, CHECKS_MAX, key
            )
            return
        question = self._checks[key] = _Question(connection, asked)
        question.task = asyncio.get_running_loop().create_task(self._answer(key, question, message))
        question.task.add_done_callback(lambda _: self._checks.pop(key, None))

    async def _answer(self, key: str, question: "_Question", message: ReceivedMessage) -> None:
        state, _ = await _outcome(self._check_state, message)
        asked = question.asked
        fields = {
            "topic": message.topic,
            "producerGroup": self.group,
            "tranStateTableOffset": asked.get("tranStateTableOffset", ""),
            "commitLogOffset": asked.get("commitLogOffset", ""),
            "commitOrRollback": str(state.value),
            "fromTransactionCheck": "true",
            "msgId": key,
            "transactionId": asked.get("transactionId") or key,
        }
        if "bname" in asked:
            fields["bname"] = asked["bname"]
        try:
            question.connection.send_oneway(self.session.command(RequestCode.END_TRANSACTION, fields))
        except TandemError as error:
            log.warning("the check of transaction %s was not answered: %s", key, error)

    async def close(self, timeout: float | None = None) -> None:
        """Cancels the checks under way (brokers ask again), then closes like any producer."""
        await cancelled([question.task for question in self._checks.values() if question.task is not None])
        self.session.off_push(self)
        await super().close(timeout)


class _Question:
    """A broker's question about one transaction, with the place of the half message when it asked last."""

    def __init__(self, connection: Any, asked: dict[str, str]) -> None:
        self.connection = connection
        self.asked = asked
        self.task: asyncio.Task[None] | None = None

    def newest(self, connection: Any, asked: dict[str, str]) -> None:
        self.connection, self.asked = connection, asked


async def _outcome(ask: Callable[[Any], Any], message: Any) -> tuple[TransactionState, Exception | None]:
    """Returns what the application says; an exception or nonsense is UNKNOWN. Plain functions run in a thread."""
    try:
        if inspect.iscoroutinefunction(ask):
            state = await ask(message)
        else:
            state, raised = await asyncio.to_thread(outcome_of, ask, message)
            if raised is not None:
                raise raised if isinstance(raised, Exception) else RuntimeError(repr(raised)) from raised
            if inspect.isawaitable(state):
                state = await state
        if not isinstance(state, TransactionState):
            raise TypeError(f"a TransactionState was expected, got {state!r}")
    except (Exception, SystemExit) as error:
        log.exception("the state of a local transaction is unknown, the broker will ask again")
        return TransactionState.UNKNOWN, error if isinstance(error, Exception) else RuntimeError(repr(error))
    return state, None
