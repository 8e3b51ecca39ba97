"""Keeps a consumer's share of the queues right: when it starts, when a broker says the group changed, and in between.

`allocation` computes the share; this module asks the questions it needs, and says when. A question that gets no answer
changes nothing: a consumer keeps what it has rather than dropping queues because a broker is away.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable

from tandemq.client.allocation import Change, allocate, change
from tandemq.client.background import cancelled
from tandemq.client.config import MessageModel
from tandemq.client.session import Session
from tandemq.codec.codes import RequestCode
from tandemq.codec.command import Command
from tandemq.errors import TandemError
from tandemq.model.topic import QueueRef

log = logging.getLogger("tandemq.client")

OTHERS_S = 1.0
"""How long the question for members waits for brokers that don't answer, if one does."""
SOON_S = 1.0
"""After an incomplete round (no route yet, a queue still locked elsewhere) the next one comes this much later."""


class Rebalancer:
    """Runs the rounds. `apply` makes a change real and returns whether all of it could be done."""

    def __init__(
        self,
        session: Session,
        group: str,
        model: MessageModel,
        *,
        topics: Callable[[], Iterable[str]],
        held: Callable[[str], Collection[QueueRef]],
        apply: Callable[[str, Change], Awaitable[bool]],
    ) -> None:
        self._session = session
        self._group = group
        self._model = model
        self._topics = topics
        self._held = held
        self._apply = apply
        self._wanted = asyncio.Event()
        self.is_alone = False
        """Whether no other member of the group was known in the last round."""
        session.on_push(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, self._notified)
        session.on_routes_changed.append(self._route_changed)

    def close(self) -> None:
        """Stops listening to the session; `run` is cancelled by its owner."""
        self._session.off_push(self)
        self._session.forget_listener(self._route_changed)

    def _route_changed(self, topic: str) -> None:
        if topic in self._topics():
            self.soon()

    def soon(self) -> None:
        """Asks for a round at once."""
        self._wanted.set()

    def _notified(self, _: object, command: Command) -> None:
        if command.ext.get("consumerGroup") == self._group:
            self.soon()

    async def run(self) -> None:
        while True:
            self._wanted.clear()
            complete = await self.round()
            wait = self._session.config.rebalance_interval_ms / 1000 if complete else SOON_S
            try:
                async with asyncio.timeout(wait):
                    await self._wanted.wait()
            except TimeoutError:
                pass

    async def round(self) -> bool:
        """Computes the share of every topic and applies it; returns False if something has to be tried again soon."""
        complete = True
        for topic in tuple(self._topics()):
            try:
                complete &= await self._round_of(topic)
            except TandemError as error:
                log.warning("group %s: %s is not rebalanced this time: %s", self._group, topic, error)
                complete = False
        return complete

    async def _round_of(self, topic: str) -> bool:
        share = await self._share(topic)
        if topic not in self._topics():
            return True  # it was unsubscribed meanwhile
        if share is None:
            return False
        due = change(self._held(topic), share)
        return await self._apply(topic, due) if due.won or due.lost else True

    async def _share(self, topic: str) -> Collection[QueueRef] | None:
        """Returns the queues that should be ours; None if it can't be known now."""
        queues = await self._session.subscribe_queues(topic)
        if not queues:
            # No route: the topic may be new. What we hold of it stays until a route says otherwise.
            return None
        if self._model is MessageModel.BROADCASTING:
            return queues
        members = await self._members(topic, queues)
        if self._session.client_id not in members:
            await self._session.heartbeat()
            members = await self._members(topic, queues)
        self.is_alone = members == [self._session.client_id]
        return allocate(self._session.config.allocation, self._session.client_id, members, queues)

    async def _members(self, topic: str, queues: Collection[QueueRef]) -> list[str]:
        """Returns the group's members: everybody whom any broker of the topic knows, in order.

        Members send heartbeats to all of them, but a broker that has just started knows only those who have done so
        since: its answer alone would take queues from the others. A broker that hangs is not waited for if others
        answer.
        """
        names = sorted({queue.broker_name for queue in queues})
        asking = [asyncio.ensure_future(self._members_at(name)) for name in names]
        try:
            await asyncio.wait(asking, timeout=OTHERS_S)
            if not any(_answered(task) for task in asking):
                await asyncio.wait(asking)
            answers = [task.result() for task in asking if _answered(task)]
        finally:
            await cancelled(asking)
        if answers:
            return sorted(set().union(*answers))
        raise asking[0].exception() or TandemError(f"no broker of topic {topic!r} has an address")

    async def _members_at(self, broker_name: str) -> list[str]:
        """Returns the members that one broker group knows."""
        problem: TandemError | None = None
        targets = self._session.routes.readers(broker_name, 0)
        for target in sorted(targets, key=lambda t: not self._session.reachable(t.address)):
            try:
                return await self._session.api.consumer_ids(target.address, self._group)
            except TandemError as error:
                self._session.mark_unreachable(target.address)
                problem = error
        raise problem or TandemError(f"broker {broker_name!r} has no address")


def _answered(task: "asyncio.Future[list[str]]") -> bool:
    return task.done() and not task.cancelled() and task.exception() is None
