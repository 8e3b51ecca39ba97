"""TransactionProducer: a message that becomes visible only if the local transaction commits.

The half message is stored first, invisible; then `execute` runs; its answer goes to the broker. When that answer is
missing (crash, network, UNKNOWN) the broker asks back, and `check` answers from the application's own state.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tandemq.client.config import ClientConfig
from tandemq.client.encode import outgoing
from tandemq.client.message import ReceivedMessage, SendResult, decode_messages
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
    """The outcome of a local transaction; the value is END_TRANSACTION's commitOrRollback."""

    COMMIT = TRANSACTION_COMMIT
    ROLLBACK = TRANSACTION_ROLLBACK
    UNKNOWN = 0
    """The broker asks again later."""


Execute = Callable[[Message], TransactionState | Awaitable[TransactionState]]
Check = Callable[[ReceivedMessage], TransactionState | Awaitable[TransactionState]]

CHECKS_MAX = 256
"""Checks that may run at the same time; more are left to the broker's next round."""


@dataclass(frozen=True, slots=True)
class TransactionResult:
    send_result: SendResult
    state: TransactionState
    error: Exception | None = None
    """What `execute` raised, if it did: the state is UNKNOWN then and `check` will decide."""


class TransactionProducer(Producer):
    """A producer whose group answers the broker's questions with `check`."""

    def __init__(
        self,
        group: str,
        check: Check,
        *,
        namesrv: str | None = None,
        config: ClientConfig | None = None,
        session: Session | None = None,
    ) -> None:
        super().__init__(group, namesrv=namesrv, config=config, session=session)
        self._check = check
        self._checks: set[asyncio.Task[None]] = set()
        self.session.on_push(RequestCode.CHECK_TRANSACTION_STATE, self._asked)

    async def send_in_transaction(
        self, message: Message, execute: Execute, *, copies: str | int | None = None
    ) -> TransactionResult:
        """Stores the half message, runs `execute`, reports its outcome. SendFailed if it could not be stored."""
        if message.delay_level:
            raise InvalidMessage("a transactional message can't be delayed")
        extra = [(names.TRANSACTION_PREPARED_FLAG, "true"), (names.PRODUCER_GROUP, self.group)]
        if copies is not None:
            extra.append((names.ACK_COPIES, str(copies)))
        key = message.properties.get(names.UNIQUE_KEY) or self.session.keys.next(self.session.clock.wall_ms())
        item = outgoing(message, key, self.config, extra=extra)
        item.sys_flag |= TRANSACTION_PREPARED
        queues = self._known_queues(message.topic) or await self.queues(message.topic)
        # Brokers must know the group before they can ask it back.
        self.session.heartbeat_soon()
        sent = await self.send_outgoing(item, queues)
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
            # Not lost: the broker asks for the state of a half message it hears nothing about.
            log.warning("the end of transaction %s was not told: %s", unique_key, error)

    def _asked(self, connection: Any, command: Command) -> None:
        """CHECK_TRANSACTION_STATE, one-way: the answer is a request of our own."""
        try:
            message = next(decode_messages(bytes(command.body), command.ext.get("bname", "")))
        except (CodecError, StopIteration) as error:
            log.error("a transaction check from %s can't be read: %s", connection.peer, error)
            return
        if message.properties.get(names.PRODUCER_GROUP) != self.group or len(self._checks) >= CHECKS_MAX:
            return
        task = asyncio.get_running_loop().create_task(self._answer(connection, dict(command.ext), message))
        self._checks.add(task)
        task.add_done_callback(self._checks.discard)

    async def _answer(self, connection: Any, asked: dict[str, str], message: ReceivedMessage) -> None:
        state, _ = await _outcome(self._check, message)
        key = message.properties.get(names.UNIQUE_KEY, asked.get("msgId", ""))
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
            connection.send_oneway(self.session.command(RequestCode.END_TRANSACTION, fields))
        except TandemError as error:
            log.warning("the check of transaction %s was not answered: %s", key, error)

    async def close(self) -> None:
        for task in list(self._checks):
            task.cancel()
        await asyncio.gather(*self._checks, return_exceptions=True)
        await super().close()
        self.session.off_push(self)


async def _outcome(ask: Callable[[Any], Any], message: Any) -> tuple[TransactionState, Exception | None]:
    """What the application says; an exception or nonsense counts as UNKNOWN. Sync functions run in a thread."""
    try:
        if inspect.iscoroutinefunction(ask):
            state = await ask(message)
        else:
            state = await asyncio.to_thread(ask, message)
            if inspect.isawaitable(state):
                state = await state
        if not isinstance(state, TransactionState):
            raise TypeError(f"a TransactionState was expected, got {state!r}")
    except Exception as error:
        log.exception("the local transaction's state is unknown, the broker will ask again")
        return TransactionState.UNKNOWN, error
    return state, None
