"""Topics, groups, consumer and delay offsets: from master to slave, and offsets committed on a slave back to the
master.

Between our nodes a slave parks one request at its master (WAIT_FOR_METADATA), which is answered when something
changed; it then asks for exactly the tables that did, with upstream's own requests, and says what it has of them: a
master that still knows what changed since then answers with that part alone.  Against a RocketMQ master it asks for all
of them every `slaveSyncInterval`, first after 3 s, as a RocketMQ 4 slave does.

Consumer and delay offsets speak of messages. They travel beside the log and may overtake it; so a master of ours says
with them how far its log goes, and the slave's tables hold them until its own log is there.

Offsets: the master's value replaces the slave's, forwards or backwards, because an operator may reset a group.  But
what clients committed at the slave while the master was away is the newer truth: those are offered to the master first,
which takes each one that is ahead of its own.  So an offset never goes back without somebody having asked for it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from enum import IntEnum
from typing import Any, Final, Protocol

from tandemq.codec.bodies import int_of, load_object
from tandemq.codec.codes import OperatorCode, RequestCode, ResponseCode
from tandemq.codec.command import Command, encode_response
from tandemq.errors import CodecError, RemotingError, ReplyError
from tandemq.remoting.access.needs import GET, needs, on_cluster
from tandemq.remoting.client import RemotingClient
from tandemq.remoting.connection import Connection

log = logging.getLogger(__name__)

FIRST_POLL: Final = 3.0
PARKED_SECONDS: Final = 20.0
COALESCE: Final = 0.2
"""Changes within this time are told together: a busy consumer group commits many times a second."""
PAUSE_MIN, PAUSE_MAX = 0.2, 5.0
REQUEST_TIMEOUT: Final = 5.0
NOBODY_PAUSE: Final = 0.5
"""Between looks for a master that nobody has named yet: only at a start, or while there is none."""


class PairCode(IntEnum):
    """Requests between our own brokers and from our own tools; a range upstream does not use."""

    WAIT_FOR_METADATA = 32101
    PROMOTE = OperatorCode.PROMOTE
    DEMOTE = OperatorCode.DEMOTE
    ANNOUNCE = 32104
    HA_DETAIL = OperatorCode.HA_DETAIL
    FORGET = 32106
    PAUSE = 32107
    MOVE_REGISTER = 32109
    FORWARD = 32110
    """A request of a client that only a master can answer, handed on by another broker of its group."""


TABLES: Final[dict[str, int]] = {
    "topics": RequestCode.GET_ALL_TOPIC_CONFIG,
    "groups": RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    "offsets": RequestCode.GET_ALL_CONSUMER_OFFSET,
    "delay": RequestCode.GET_ALL_DELAY_OFFSET,
    "users": OperatorCode.GET_USERS,
}
OURS_ONLY: Final = frozenset({"users"})
"""Tables that RocketMQ's brokers, and ours of before, have no request for."""

ROCKETMQ_TABLES: Final[dict[str, int]] = {
    **{name: code for name, code in TABLES.items() if name not in OURS_ONLY},
    "timers": RequestCode.GET_TIMER_CHECK_POINT,
}
"""What a RocketMQ master is asked for; ours write into the log how far timer messages have come."""
OPTIONAL: Final = frozenset({"timers"})
"""RocketMQ 4 does not know the request, and a RocketMQ 5 without timer messages refuses it."""
AT_LOG_END: Final = frozenset({"delay", "timers"})
"""What a RocketMQ master has delivered: its log says so where it ends just after it told."""

LOG_END: Final = "tandemqLogEnd"
"""Field of the answers with tables of progress: the position of the log at which they are true."""

SINCE: Final = "tandemqSince"
"""Field of a request for a table: the mark up to which the asker has it, empty if it has nothing.  In the answer: the
table has only what changed since that mark."""
MARK: Final = "tandemqMark"
"""Field of the answer to such a request: the mark up to which the asker has the table with it."""
LARGE_BODY: Final = 64 << 10
"""Larger answers are decoded beside the loop."""

LocalOffset = tuple[str, str, int, int]
"""group, topic, queue id, offset"""


class Tables(Protocol):
    """The broker's tables, as far as replication touches them."""

    def marks(self) -> Mapping[str, str]:
        """Returns table name -> text that changes whenever the table does."""
        ...

    def held_to(self, table: str) -> str | None:
        """Returns up to which mark of the master this node has a table, empty for nothing; None if it is not told in
        parts."""
        ...

    def read(self, table: str, body: bytes, is_part: bool) -> Any:
        """Decodes what the master said, for `take`; touches nothing, so that any thread may do it."""
        ...

    def take(self, told: Any, position: int | None, mark: str = "", *, is_of_rocketmq: bool = False) -> None:
        """Replaces (topics, groups, delay) or merges (offsets) what the master has, or takes over what changed there.

        `position`: how far its log went when it said so; None from a master that does not say. `mark`: what `held_to`
        answers from now on.
        """
        ...

    def merge(self, table: str, body: bytes, position: int | None) -> None:
        """Takes what a replica that is no master has, if it is newer than what this node has."""
        ...

    def local_offsets(self) -> list[LocalOffset]:
        """Returns what clients committed here since the master last took it."""
        ...

    def delivered(self, offsets: list[LocalOffset]) -> None:
        """Notes that the master has these now."""
        ...


class MetadataServer:
    """The master's side: parked requests, answered when a table changes."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self.is_open = False
        """Whether somebody may have these tables: not while this node is about to reign and asks others for theirs."""
        self._parked: dict[asyncio.Future[None], None] = {}
        """In the order in which they came: so the simulator replays a run."""
        self._slaves: dict[Connection, Mapping[str, str]] = {}
        """The marks that each slave that asks here has, by its last request."""
        self._heard = asyncio.Event()
        self._is_hasty = False
        self._is_stopping = False

    def changed(self) -> None:
        """Wakes those who wait for a change; cheap when nobody does."""
        if self._parked:
            parked, self._parked = self._parked, {}
            for waiter in parked:
                if not waiter.done():
                    waiter.set_result(None)

    @needs(on_cluster(GET))
    async def wait(self, connection: Connection, command: Command) -> bytes:
        """Answers with the current marks, once they differ from those of the request."""
        if not self.is_open and not await self._until_open():
            return encode_response(command.opaque, ResponseCode.SYSTEM_BUSY, "this broker does not reign yet")
        told = dict(command.ext)
        self._slaves = {slave: known for slave, known in self._slaves.items() if slave.is_open}
        self._slaves[connection] = told
        self._heard.set()
        marks = self._marks_for(told)
        if _has(told, marks):
            if self._is_stopping:
                return encode_response(command.opaque, ResponseCode.SYSTEM_BUSY, "the broker is stopping")
            await self._parked_for(PARKED_SECONDS)
            marks = self._marks_for(told)
        return encode_response(command.opaque, ResponseCode.SUCCESS, None, marks)

    async def _until_open(self) -> bool:
        """Waits for a node that is about to reign; returns whether it does."""
        await self._parked_for(PARKED_SECONDS)
        return self.is_open

    async def _parked_for(self, seconds: float) -> None:
        """Waits until something changes, at most so long."""
        waiter = asyncio.get_running_loop().create_future()
        self._parked[waiter] = None
        try:
            async with asyncio.timeout(seconds):
                await waiter
                if not self._is_hasty:
                    await asyncio.sleep(COALESCE)
        except TimeoutError:
            pass
        finally:
            self._parked.pop(waiter, None)

    def _marks_for(self, told: Mapping[str, str]) -> dict[str, str]:
        """Returns the current marks of the tables that this slave knows of; one of before does not know the last."""
        return {name: mark for name, mark in self._tables.marks().items() if name not in OURS_ONLY or name in told}

    async def told(self, seconds: float, *, stopping: bool) -> None:
        """Waits, before a stop or a hand-over, until every slave that asks here has the current tables; bounded."""
        self._is_hasty, self._is_stopping = True, stopping
        self.changed()
        try:
            async with asyncio.timeout(seconds):
                while self._behind():
                    self._heard.clear()
                    await self._heard.wait()
        except TimeoutError:
            peers = ", ".join(slave.peer for slave in self._behind())
            log.warning("slaves that may lack the last changes of topics, groups or offsets: %s", peers)
        self._is_hasty = False

    def _behind(self) -> list[Connection]:
        slaves = [(slave, known) for slave, known in self._slaves.items() if slave.is_open]
        return [slave for slave, known in slaves if not _has(known, self._marks_for(known))]


def _has(known: Mapping[str, str], marks: Mapping[str, str]) -> bool:
    return all(known.get(name) == mark for name, mark in marks.items())


class MetadataFollower:
    """The slave's side: one task as long as the broker is a slave."""

    def __init__(
        self,
        client: RemotingClient,
        tables: Tables,
        where: Callable[[], tuple[str, bool] | None],
        *,
        interval: float,
        observer: bool = False,
    ) -> None:
        """`where`: (the master's remoting address, whether it is one of ours), None if there is none.

        An `observer` changes nothing at its master: offsets committed here stay here.
        """
        self._observer = observer
        self._client = client
        self._tables = tables
        self._where = where
        self._interval = interval
        self._known: dict[str, str] = {}
        self._task: asyncio.Task[None] | None = None
        self._kick = asyncio.Event()
        self.synced_at: Callable[[], None] = lambda: None
        self.last_error = ""

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="ha metadata")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def look_again(self) -> None:
        """Asks the master now: one is there."""
        self._known.clear()
        self._kick.set()

    async def _run(self) -> None:
        pause = PAUSE_MIN
        polled = False
        while True:
            place = self._where()
            if place is None:
                await self._sleep(NOBODY_PAUSE)
                continue
            address, is_ours = place
            try:
                if is_ours:
                    await self._push(address)
                    await self._follow(address)
                    wait, pause = 0.0, PAUSE_MIN
                else:
                    if not polled:
                        polled = True
                        await self._sleep(FIRST_POLL)
                        continue  # by now it may be known that the master is one of ours
                    await self._push(address)
                    await self._poll(address)
                    wait = self._interval
                self._note("")
            except (RemotingError, ReplyError, CodecError) as error:
                self._note(str(error))
                wait, pause = pause, min(pause * 2, PAUSE_MAX)
            if wait:
                await self._sleep(wait)

    def _note(self, error: str) -> None:
        if error and error != self.last_error:
            log.warning("metadata of the master could not be had, trying on: %s", error)
        self.last_error = error

    async def _sleep(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._kick.wait()
            self._kick.clear()
        except TimeoutError:
            pass

    async def _follow(self, address: str) -> None:
        """Parks at the master until something differs from what we know, then asks for that."""
        command = Command(PairCode.WAIT_FOR_METADATA, dict.fromkeys(OURS_ONLY, "") | self._known)
        reply = await self._client.invoke(address, command, PARKED_SECONDS + REQUEST_TIMEOUT)
        reply.raise_for_code(ResponseCode.SUCCESS)
        marks = {name: reply.ext[name] for name in TABLES if name in reply.ext}
        changed = [name for name, mark in marks.items() if self._known.get(name) != mark]
        await self._fetch(address, changed)
        self._known = marks

    async def _fetch(self, address: str, names: list[str]) -> None:
        for name in names:
            since = self._tables.held_to(name)
            command = Command(TABLES[name], {} if since is None else {SINCE: since})
            reply = await self._client.invoke(address, command, REQUEST_TIMEOUT)
            reply.raise_for_code(ResponseCode.SUCCESS)
            if reply.body:
                is_part = bool(since) and reply.ext.get(SINCE) == since
                told = await self._read(name, bytes(reply.body), is_part)
                self._tables.take(told, log_end_of(reply), reply.ext.get(MARK, ""))
        if names:
            self.synced_at()

    async def _poll(self, address: str) -> None:
        """Asks a RocketMQ master for everything; it never says what has changed, nor where its tables are true."""
        for name, code in ROCKETMQ_TABLES.items():
            reply = await self._client.invoke(address, Command(code), REQUEST_TIMEOUT)
            if name in OPTIONAL and reply.code != ResponseCode.SUCCESS:
                continue
            reply.raise_for_code(ResponseCode.SUCCESS)
            if reply.body:
                told = await self._read(name, bytes(reply.body), False)
                position = await self._log_end(address) if name in AT_LOG_END else None
                self._tables.take(told, position, is_of_rocketmq=True)
        self.synced_at()

    async def _log_end(self, address: str) -> int:
        """Returns where a RocketMQ master's log ends now: what it told before is true there."""
        reply = await self._client.invoke(address, Command(RequestCode.GET_BROKER_RUNTIME_INFO), REQUEST_TIMEOUT)
        reply.raise_for_code(ResponseCode.SUCCESS)
        table = load_object(bytes(reply.body), "runtime info").get("table")
        return int_of(table if isinstance(table, dict) else {}, "commitLogMaxOffset")

    async def _read(self, name: str, body: bytes, is_part: bool) -> Any:
        if len(body) <= LARGE_BODY:
            return self._tables.read(name, body, is_part)
        return await asyncio.get_running_loop().run_in_executor(None, self._tables.read, name, body, is_part)

    async def _push(self, address: str) -> None:
        """Sends offsets committed here to the master where they are ahead of its own."""
        mine = self._tables.local_offsets() if not self._observer else []
        for group, topic, queue_id, offset in mine:
            ext = {"consumerGroup": group, "topic": topic, "queueId": str(queue_id)}
            query = Command(RequestCode.QUERY_CONSUMER_OFFSET, {**ext, "setZeroIfNotFound": "false"})
            reply = await self._client.invoke(address, query, REQUEST_TIMEOUT)
            known = int(reply.ext.get("offset", -1)) if reply.code == ResponseCode.SUCCESS else -1
            if known >= offset:
                continue
            update = Command(RequestCode.UPDATE_CONSUMER_OFFSET, {**ext, "commitOffset": str(offset)})
            (await self._client.invoke(address, update, REQUEST_TIMEOUT)).raise_for_code(ResponseCode.SUCCESS)
            log.info(
                "offset of %s on %s-%d brought to the master: %d, it had %d", group, topic, queue_id, offset, known
            )
        if mine:
            self._tables.delivered(mine)


class KeyWanted(RemotingError):
    """A broker of ours has a key, and we another one or none."""


def log_end_of(reply: Command) -> int | None:
    """Returns at which position of the master's log the table in this answer is true, None if it does not say."""
    text = reply.ext.get(LOG_END, "")
    return int(text) if text.isdecimal() and len(text) < 20 else None


async def merge_tables_of(client: RemotingClient, tables: Tables, address: str, timeout: float) -> None:
    """Asks a replica that was heard, and perhaps gave log, for its tables too: we may have missed what it learned.

    Raises RemotingError, ReplyError or CodecError; what came before that counts.
    """
    for name in ("topics", "groups", "offsets"):
        reply = await client.invoke(address, Command(TABLES[name]), timeout)
        reply.raise_for_code(ResponseCode.SUCCESS)
        if reply.body:
            tables.merge(name, bytes(reply.body), log_end_of(reply))
    reply = await client.invoke(address, Command(TABLES["users"]), timeout)
    if reply.code == ResponseCode.SUCCESS and reply.body:  # refused where access is not controlled
        tables.merge("users", bytes(reply.body), None)


async def ask_ha_info(client: RemotingClient, address: str, timeout: float = REQUEST_TIMEOUT) -> Mapping[str, str]:
    """Asks the master where its HA port is, and whether it is one of ours (EXCHANGE_BROKER_HA_INFO, `tandemqHa`).

    A RocketMQ 4 master does not know the request and says so: no fields then.  RemotingError if nobody answers,
    KeyWanted if one of ours does not tell without a proof of its group's key.
    """
    reply = await client.invoke(address, Command(RequestCode.EXCHANGE_BROKER_HA_INFO), timeout)
    if reply.code == ResponseCode.NO_PERMISSION and "haSharedKey" in (reply.remark or ""):
        raise KeyWanted(f"{address}: {reply.remark}")
    if reply.code in (ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE):
        # It starts, stops or is overloaded. Taken for a RocketMQ broker, one of ours would be followed without epochs.
        raise RemotingError(f"{address} can't tell now: {reply.remark} (code {reply.code})")
    return reply.ext if reply.code == ResponseCode.SUCCESS else {}


Ask = Callable[[str], Awaitable[Mapping[str, str]]]
