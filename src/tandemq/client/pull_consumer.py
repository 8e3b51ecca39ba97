"""PullConsumer: the program asks for messages when it wants them.

`subscribe` shares the queues of topics with the rest of the group; `assign` takes exactly the queues given, without a
group's rebalancing. Messages are fetched ahead into bounded caches; `poll` takes from them. Offsets move with `poll`
(auto commit, at most once per persistConsumerOffsetInterval) or with `commit`.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Collection, Iterable, Mapping

from tandemq.client.config import ClientConfig, MessageModel
from tandemq.client.fetcher import QueueFetcher
from tandemq.client.message import ReceivedMessage
from tandemq.client.offsets import RemoteOffsets
from tandemq.client.process_queue import ProcessQueue
from tandemq.client.rebalance import Change
from tandemq.client.rebalancer import Rebalancer
from tandemq.client.session import Session, session_for
from tandemq.client.start_offset import start_offset
from tandemq.client.subscription import ALL, TAG, subscription
from tandemq.codec.heartbeat import ConsumerGroupInfo, Subscription
from tandemq.errors import ClientError, TandemError
from tandemq.model.topic import QueueRef, group_name_problem

log = logging.getLogger("tandemq.client")


class _Fetched:
    """One queue: its cache, and the task that fills it."""

    def __init__(self, state: ProcessQueue) -> None:
        self.state = state
        self.waiting: deque[ReceivedMessage] = deque()
        self.position = state.next_offset
        """What `poll` gives next."""
        self.fetcher: QueueFetcher | None = None
        self.task: asyncio.Task[None] | None = None

    def stop(self) -> None:
        self.state.dropped = True
        if self.task is not None:
            self.task.cancel()


class PullConsumer:
    """See the module's text."""

    def __init__(
        self,
        group: str,
        *,
        namesrv: str | None = None,
        config: ClientConfig | None = None,
        session: Session | None = None,
        auto_commit: bool = True,
    ) -> None:
        problem = group_name_problem(group)
        if problem:
            raise ClientError(problem)
        self._group = group
        self.session, self._owns_session = session_for(session, config, namesrv)
        self.config = self.session.config
        self._auto_commit = auto_commit
        self._offsets = RemoteOffsets(self.session, group)
        self._subscriptions: dict[str, Subscription] = {}
        self._assigned_by_hand = False
        self._held: dict[QueueRef, _Fetched] = {}
        self._turn: deque[QueueRef] = deque()
        """Queues in the order in which `poll` serves them."""
        self._arrived = asyncio.Event()
        self._rebalancer: Rebalancer | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._started = False

    # what the session asks

    @property
    def group(self) -> str:
        return self._group

    def topics(self) -> Iterable[str]:
        return tuple(self._subscriptions)

    def consumer_info(self) -> ConsumerGroupInfo | None:
        return ConsumerGroupInfo(
            group=self._group,
            consume_type="CONSUME_ACTIVELY",
            consume_from=self.config.consume_from.value,
            subscriptions=() if self._assigned_by_hand else tuple(self._subscriptions.values()),
        )

    # life

    def subscribe(self, topic: str, expression: str = ALL, kind: str = TAG) -> None:
        if self._assigned_by_hand:
            raise ClientError("this consumer has queues assigned by hand: subscribe and assign don't mix")
        self._subscriptions[topic] = subscription(topic, expression, kind, self.session.clock.wall_ms())
        if self._rebalancer is not None:
            self.session.heartbeat_soon()
            self._rebalancer.soon()

    async def start(self) -> None:
        await self.session.start()
        self.session.join(self)
        self._started = True
        self._tasks = [asyncio.create_task(self._persist_forever())]
        if self._subscriptions:
            self._rebalancer = Rebalancer(
                self.session,
                self._group,
                MessageModel.CLUSTERING,
                topics=self.topics,
                held=lambda topic: [queue for queue in self._held if queue.topic == topic],
                apply=self._apply,
            )
            for topic, item in self._subscriptions.items():
                await self.session.subscribe_queues(topic)
                await self.session.check_filter(self._group, item)
            await self.session.heartbeat()
            self._tasks.append(asyncio.create_task(self._rebalancer.run()))

    async def close(self) -> None:
        """Commits what was polled (auto commit), leaves the group."""
        if not self._started:
            return
        self._started = False
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        held = list(self._held)
        await self._persist(held)
        for queue in held:
            self._held.pop(queue).stop()
        if self._rebalancer is not None:
            self._rebalancer.close()
        await self.session.leave(self)
        if self._owns_session:
            await self.session.close()

    async def __aenter__(self) -> "PullConsumer":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # assignment

    @property
    def assignment(self) -> tuple[QueueRef, ...]:
        return tuple(sorted(self._held))

    async def queues(self, topic: str) -> tuple[QueueRef, ...]:
        """All readable queues of a topic, for `assign`."""
        return await self.session.subscribe_queues(topic)

    async def assign(self, queues: Collection[QueueRef], expression: str = ALL, kind: str = TAG) -> None:
        """Takes exactly these queues, at the group's offsets (`seek` moves them); replaces an earlier assignment."""
        if self._rebalancer is not None:
            raise ClientError("this consumer subscribes to topics: subscribe and assign don't mix")
        self._assigned_by_hand = True
        wanted = set(queues)
        for queue in [queue for queue in self._held if queue not in wanted]:
            await self._give_up(queue)
        for topic in {queue.topic for queue in wanted}:
            self._subscriptions[topic] = subscription(topic, expression, kind, self.session.clock.wall_ms())
            await self.session.route(topic)
            await self.session.check_filter(self._group, self._subscriptions[topic])
        for queue in sorted(wanted - set(self._held)):
            self._begin(queue, await start_offset(self.session, self._offsets, queue, self.config))

    async def _apply(self, topic: str, due: Change) -> bool:
        for queue in due.lost:
            await self._give_up(queue)
        for queue in due.won:
            self._begin(queue, await start_offset(self.session, self._offsets, queue, self.config))
        return True

    def _begin(self, queue: QueueRef, offset: int) -> None:
        state = ProcessQueue(next_offset=offset)
        fetched = _Fetched(state)

        def deliver(messages: list[ReceivedMessage]) -> None:
            fetched.waiting.extend(messages)
            self._arrived.set()

        fetched.fetcher = QueueFetcher(
            self.session,
            self._group,
            queue,
            state,
            self._subscriptions[queue.topic],
            offsets=self._offsets if self._auto_commit else None,
            deliver=deliver,
            moved=lambda to: self._move(queue, to),
        )
        fetched.task = asyncio.create_task(fetched.fetcher.run(), name=f"tandemq-pull-{queue}")
        self._held[queue] = fetched
        if queue not in self._turn:
            self._turn.append(queue)

    async def _give_up(self, queue: QueueRef) -> None:
        self._held.pop(queue).stop()
        await self._persist([queue])
        self._offsets.forget(queue)

    # reading

    async def poll(self, timeout_ms: int = 5_000, count_max: int = 32) -> list[ReceivedMessage]:
        """Up to `count_max` messages of one or more queues, taking turns; an empty list after the timeout."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while not (messages := self._take(count_max)):
                    self._arrived.clear()
                    await self._arrived.wait()
                return messages
        except TimeoutError:
            return []

    def _take(self, count_max: int) -> list[ReceivedMessage]:
        taken: list[ReceivedMessage] = []
        for _ in range(len(self._turn)):
            queue = self._turn[0]
            self._turn.rotate(-1)
            fetched = self._held.get(queue)
            if fetched is None:
                self._turn.remove(queue)
                continue
            if fetched.state.paused:
                continue
            room = count_max - len(taken)
            own = [fetched.waiting.popleft() for _ in range(min(room, len(fetched.waiting)))]
            if own:
                taken += own
                self._polled(queue, fetched, own)
            if len(taken) == count_max:
                break
        return taken

    def _polled(self, queue: QueueRef, fetched: _Fetched, messages: list[ReceivedMessage]) -> None:
        fetched.state.remove(messages)
        fetched.position = messages[-1].queue_offset + 1
        if self._auto_commit:
            self._offsets.update(queue, fetched.position)
        if fetched.fetcher is not None:
            fetched.fetcher.wake.set()

    # positions

    def position(self, queue: QueueRef) -> int:
        """What `poll` gives next of a queue."""
        return self._queue(queue).position

    def examined(self, queue: QueueRef) -> int:
        """How far a queue was looked at and polled: past `position` where the filter left nothing."""
        fetched = self._queue(queue)
        return fetched.position if fetched.waiting else max(fetched.position, fetched.state.next_offset)

    def seek(self, queue: QueueRef, offset: int) -> None:
        """Goes on at an offset; what was fetched ahead is dropped."""
        self._queue(queue)
        self._move(queue, offset)

    async def seek_to_time(self, queue: QueueRef, timestamp_ms: int) -> int:
        """Goes on at the first message stored at or after a time; gives its offset."""
        address = await self.session.any_address(queue.broker_name, queue.topic)
        offset = await self.session.api.offset_at(address, queue, timestamp_ms)
        self.seek(queue, offset)
        return offset

    async def seek_to_begin(self, queue: QueueRef) -> None:
        self.seek(queue, (await self.range(queue))[0])

    async def seek_to_end(self, queue: QueueRef) -> None:
        self.seek(queue, (await self.range(queue))[1])

    async def range(self, queue: QueueRef) -> tuple[int, int]:
        """[first, next) offsets the broker has."""
        address = await self.session.any_address(queue.broker_name, queue.topic)
        low = await self.session.api.min_offset(address, queue)
        return max(0, low), await self.session.api.max_offset(address, queue)

    async def committed(self, queue: QueueRef) -> int | None:
        """The group's offset as the broker has it."""
        return await self._offsets.read(queue, zero_if_young=False)

    async def commit(self, offsets: Mapping[QueueRef, int] | None = None) -> None:
        """Commits the given offsets, or everything polled so far; returns when the brokers have it."""
        wanted = offsets if offsets is not None else {queue: held.position for queue, held in self._held.items()}
        for queue, offset in wanted.items():
            self._offsets.update(queue, offset, may_go_back=True)
        await self._offsets.persist(wanted)

    def pause(self, queues: Iterable[QueueRef]) -> None:
        for queue in queues:
            self._queue(queue).state.paused = True

    def resume(self, queues: Iterable[QueueRef]) -> None:
        for queue in queues:
            fetched = self._queue(queue)
            fetched.state.paused = False
            if fetched.fetcher is not None:
                fetched.fetcher.wake.set()
        self._arrived.set()

    def _queue(self, queue: QueueRef) -> _Fetched:
        fetched = self._held.get(queue)
        if fetched is None:
            raise ClientError(f"{queue} is not assigned to this consumer; it has {self.assignment}")
        return fetched

    def _move(self, queue: QueueRef, offset: int) -> None:
        fetched = self._held.get(queue)
        if fetched is None:
            return
        fetched.stop()
        paused = fetched.state.paused
        if self._auto_commit:
            self._offsets.update(queue, offset, may_go_back=True)
        self._begin(queue, offset)
        self._held[queue].state.paused = paused

    # offsets

    async def _persist_forever(self) -> None:
        while True:
            await asyncio.sleep(self.config.persist_interval_ms / 1000)
            await self._persist(list(self._held))

    async def _persist(self, queues: Iterable[QueueRef]) -> None:
        if not self._auto_commit:
            return
        try:
            await self._offsets.persist(queues)
        except TandemError as error:
            log.warning("group %s: offsets are not written this time: %s", self._group, error)
