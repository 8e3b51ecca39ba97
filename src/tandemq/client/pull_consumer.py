"""PullConsumer: the program asks for messages when it wants them.

`subscribe` shares the queues of topics with the rest of the group; `assign` takes exactly the queues given, without a
group's rebalancing. Messages are fetched ahead into bounded caches; `poll` and `async for` take from them.

At-least-once: with auto commit a message counts as handled when the next one is asked for (or the consumer is closed
without an exception), and handled offsets are committed every few seconds and at the end. Without it, `commit` says so.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from typing import Self

from tandemq.client.allocation import Change
from tandemq.client.arguments import check_flag, check_group, check_timeout_ms
from tandemq.client.background import Background
from tandemq.client.config import ClientConfig, MessageModel
from tandemq.client.fetcher import QueueFetcher
from tandemq.client.held_queue import HeldQueue
from tandemq.client.message import ReceivedMessage
from tandemq.client.offsets import RemoteOffsets
from tandemq.client.process_queue import CacheBudget, ProcessQueue
from tandemq.client.rebalancer import Rebalancer
from tandemq.client.session import Session, session_for
from tandemq.client.start_offset import start_offset
from tandemq.client.subscription import ALL, TAG, subscription
from tandemq.codec.heartbeat import ConsumerGroupInfo, Subscription
from tandemq.errors import ClientClosed, ClientError, TandemError
from tandemq.model.topic import QueueRef

log = logging.getLogger("tandemq.client")

ITERATION_POLL_MS = 30_000
"""How long one step of `async for` waits before it waits again."""


class _PolledQueue(HeldQueue):
    """One queue: what was fetched of it, and how far it was polled."""

    def __init__(self, queue: QueueRef, state: ProcessQueue) -> None:
        super().__init__(queue, state)
        self.waiting: deque[ReceivedMessage] = deque()
        self.position = state.next_offset
        """What `poll` gives next."""


class PullConsumer:
    """Gives messages when it is asked for them.

        consumer = PullConsumer("auditors", namesrv="127.0.0.1:9876")
        consumer.subscribe("orders")
        async with consumer:
            async for message in consumer:
                print(message.body)
                break

    Or with queues and offsets of your own choice:

        async with PullConsumer("auditors", namesrv="127.0.0.1:9876", auto_commit=False) as consumer:
            await consumer.assign(await consumer.queues("orders"))
            for message in await consumer.poll(timeout_ms=1000, count_max=100):
                print(message.queue_id, message.queue_offset)
            await consumer.commit()
    """

    def __init__(
        self,
        group: str,
        *,
        namesrv: str | None = None,
        config: ClientConfig | None = None,
        session: Session | None = None,
        auto_commit: bool = True,
    ) -> None:
        self._group = check_group(group)
        self.session, self._owns_session = session_for(session, config, namesrv)
        self.config = self.session.config
        self._auto_commit = check_flag(auto_commit, "auto_commit")
        self._offsets = RemoteOffsets(self.session, group)
        self._subscriptions: dict[str, Subscription] = {}
        self._assigned_by_hand = False
        self._held: dict[QueueRef, _PolledQueue] = {}
        self._budget = CacheBudget(self.config.cache_bytes_max << 20)
        self._turn: deque[QueueRef] = deque()
        """Queues in the order in which `poll` serves them."""
        self._arrived = asyncio.Event()
        self._rebalancer: Rebalancer | None = None
        self._background = Background(f"group {group}")
        self._started = self._closed = False

    # what the session asks

    @property
    def group(self) -> str:
        """The consumer group."""
        return self._group

    @property
    def needs_all_masters(self) -> bool:
        """False: a consumer is known to the brokers of its topics."""
        return False

    def topics(self) -> Iterable[str]:
        """Returns the topics that are subscribed or assigned."""
        return tuple(self._subscriptions)

    def consumer_info(self) -> ConsumerGroupInfo | None:
        """Returns what heartbeats tell brokers about this consumer."""
        return ConsumerGroupInfo(
            group=self._group,
            consume_type="CONSUME_ACTIVELY",
            consume_from=self.config.consume_from.value,
            subscriptions=() if self._assigned_by_hand else tuple(self._subscriptions.values()),
        )

    # life

    def subscribe(self, topic: str, expression: str = ALL, kind: str = TAG) -> None:
        """Adds or replaces the subscription of a topic; also while running.

        consumer.subscribe("orders", "new || paid")
        """
        if self._assigned_by_hand:
            raise ClientError("this consumer has queues assigned by hand: subscribe and assign don't mix")
        self._subscriptions[topic] = subscription(topic, expression, kind, self.session.clock.wall_ms())
        if self._started:
            for held in self._held.values():
                if held.queue.topic == topic:
                    held.fetch_anew()
            self.session.heartbeat_soon()
            self._share_queues().soon()

    async def start(self) -> None:
        """Joins the group; `async with` does it too. After a failure it may be called again."""
        if self._closed:
            raise ClientClosed(f"consumer {self._group!r} was closed: make a new one")
        if self._started:
            raise ClientError(f"consumer {self._group!r} is started already")
        await self.session.start()
        self.session.join(self)
        self._started = True
        try:
            for topic, item in tuple(self._subscriptions.items()):
                await self.session.subscribe_queues(topic)
                await self.session.check_filter(self._group, item)
            await self.session.heartbeat()
        except BaseException:
            self._started = False
            await self.session.leave(self)
            raise
        self._background.start("offsets", self._persist_forever)
        if self._subscriptions:
            self._share_queues()

    def _share_queues(self) -> Rebalancer:
        """Returns what shares the queues out among the members; starts it with the first subscription."""
        if self._rebalancer is None:
            self._rebalancer = Rebalancer(
                self.session,
                self._group,
                MessageModel.CLUSTERING,
                topics=self.topics,
                held=lambda topic: [queue for queue in self._held if queue.topic == topic],
                apply=self._apply,
            )
            self._background.start("rebalance", self._rebalancer.run)
        return self._rebalancer

    async def close(self, *, handled: bool = True) -> None:
        """Commits what was handled (auto commit), leaves the group.

            await consumer.close()

        `handled=False` says that what `poll` gave last was not handled: it comes again.
        """
        if self._closed:
            return
        self.session.check_loop(f"consumer {self._group!r}")
        self._closed = True
        try:
            await self._background.stop()
            if self._started:
                self._started = False
                if handled:
                    self._acknowledge()
                await self._persist(list(self._held))
                for held in self._held.values():
                    held.drop()
                self._held.clear()
        finally:
            self._arrived.set()
            if self._rebalancer is not None:
                self._rebalancer.close()
            await self.session.leave(self)
            if self._owns_session:
                await self.session.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.close(handled=kind is None)

    # assignment

    @property
    def assignment(self) -> tuple[QueueRef, ...]:
        """The queues that this consumer has now."""
        return tuple(sorted(self._held))

    async def queues(self, topic: str) -> tuple[QueueRef, ...]:
        """Returns all readable queues of a topic, for `assign`.

        queues = await consumer.queues("orders")
        """
        return await self.session.subscribe_queues(topic)

    async def assign(self, queues: Collection[QueueRef], expression: str = ALL, kind: str = TAG) -> None:
        """Takes exactly these queues, at the group's offsets (`seek` moves them); replaces an earlier assignment.

        await consumer.assign(await consumer.queues("orders"))
        """
        self._check_running("assign()")
        if self._subscriptions and not self._assigned_by_hand:
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
            offset = await start_offset(self.session, self._offsets, queue, self.config)
            if queue.topic in self._subscriptions and self._started:
                self._begin(queue, offset)
        # A new group's place is stored also without auto commit: whoever wins the queue next starts there.
        await self._write([queue for queue in due.won if queue in self._held])
        return True

    def _begin(self, queue: QueueRef, offset: int) -> None:
        state = ProcessQueue(next_offset=offset, budget=self._budget)
        held = self._held[queue] = _PolledQueue(queue, state)

        def deliver(messages: list[ReceivedMessage]) -> None:
            held.waiting.extend(messages)
            self._arrived.set()

        held.fetch_with(
            QueueFetcher(
                self.session,
                self._group,
                queue,
                state,
                lambda: self._subscriptions.get(queue.topic) or Subscription(topic=queue.topic),
                offsets=None,
                deliver=deliver,
                moved=lambda to: self._move(queue, to),
            )
        )
        if queue not in self._turn:
            self._turn.append(queue)

    async def _give_up(self, queue: QueueRef) -> None:
        self._held.pop(queue).drop()
        await self._persist([queue])
        self._offsets.forget(queue)

    # reading

    async def poll(self, timeout_ms: int = 5_000, count_max: int = 32) -> list[ReceivedMessage]:
        """Returns up to `count_max` messages of one or more queues, taking turns; none after the timeout.

            for message in await consumer.poll(timeout_ms=1000, count_max=100):
                print(message.body)

        With auto commit, asking again says that what was given before is handled.
        """
        check_timeout_ms(timeout_ms)
        if not isinstance(count_max, int) or count_max < 1:
            raise ClientError(f"count_max={count_max!r}: a whole number of at least 1 is needed")
        self._check_running("poll()")
        if not self._subscriptions:
            raise ClientError("poll() has nothing to wait for: call subscribe() or assign() first")
        self._acknowledge()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while not (messages := self._take(count_max)):
                    self._arrived.clear()
                    await self._arrived.wait()
                    self._check_running("poll()")
                return messages
        except TimeoutError:
            return []

    async def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """Gives message after message, until the consumer is closed.

            async for message in consumer:
                print(message.body)
                break

        With auto commit a message is handled when the next one is asked for. Leaving the loop by an exception that also
        leaves `async with` makes the last message come again.
        """
        while not self._closed:
            try:
                messages = await self.poll(ITERATION_POLL_MS, 1)
            except ClientClosed:
                return
            for message in messages:
                yield message

    def _take(self, count_max: int) -> list[ReceivedMessage]:
        taken: list[ReceivedMessage] = []
        for _ in range(len(self._turn)):
            queue = self._turn[0]
            self._turn.rotate(-1)
            held = self._held.get(queue)
            if held is None:
                self._turn.remove(queue)
                continue
            if held.state.paused:
                continue
            room = count_max - len(taken)
            own = [held.waiting.popleft() for _ in range(min(room, len(held.waiting)))]
            if own:
                taken += own
                held.state.remove(own)
                held.position = own[-1].queue_offset + 1
                held.wake()
            if len(taken) == count_max:
                break
        return taken

    def _acknowledge(self) -> None:
        """Takes everything that was given so far as handled."""
        if self._auto_commit:
            for queue in self._held:
                self._offsets.update(queue, self.examined(queue))

    # positions

    def position(self, queue: QueueRef) -> int:
        """Returns the offset that `poll` gives next of a queue.

        print(consumer.position(consumer.assignment[0]))
        """
        return self._queue(queue).position

    def examined(self, queue: QueueRef) -> int:
        """Returns how far a queue was read and polled: past `position` where the filter left nothing."""
        held = self._queue(queue)
        return held.position if held.waiting else max(held.position, held.state.next_offset)

    def seek(self, queue: QueueRef, offset: int) -> None:
        """Goes on at an offset; what was fetched ahead is dropped.

        consumer.seek(consumer.assignment[0], 0)
        """
        if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
            raise ClientError(f"offset={offset!r}: a whole number of at least 0 is needed")
        self._queue(queue)
        self._move(queue, offset)

    async def seek_to_time(self, queue: QueueRef, timestamp_ms: int) -> int:
        """Goes on at the first message stored at or after a time; returns its offset."""
        offset = await self.session.ask_reader(
            queue.broker_name, queue.topic, lambda address: self.session.api.offset_at(address, queue, timestamp_ms)
        )
        self.seek(queue, offset)
        return offset

    async def seek_to_begin(self, queue: QueueRef) -> None:
        """Goes on at the first message that the broker has."""
        self.seek(queue, (await self.range(queue))[0])

    async def seek_to_end(self, queue: QueueRef) -> None:
        """Goes on at what is stored from now on."""
        self.seek(queue, (await self.range(queue))[1])

    async def range(self, queue: QueueRef) -> tuple[int, int]:
        """Returns the offsets [first, next) that the broker has of a queue.

        first, following = await consumer.range(consumer.assignment[0])
        """

        async def ask(address: str) -> tuple[int, int]:
            low = await self.session.api.min_offset(address, queue)
            return max(0, low), await self.session.api.max_offset(address, queue)

        return await self.session.ask_reader(queue.broker_name, queue.topic, ask)

    async def committed(self, queue: QueueRef) -> int | None:
        """Returns the group's offset as the broker has it; None if there is none."""
        return await self._offsets.read(queue, zero_if_young=False)

    async def commit(self, offsets: Mapping[QueueRef, int] | None = None) -> None:
        """Commits the given offsets, or everything polled so far; returns when the brokers have it.

        await consumer.commit()
        """
        wanted = offsets if offsets is not None else {queue: held.position for queue, held in self._held.items()}
        for queue, offset in wanted.items():
            self._offsets.update(queue, offset, may_go_back=True)
        await self._offsets.persist(wanted)

    def pause(self, queues: Iterable[QueueRef]) -> None:
        """Leaves queues out of `poll` and stops fetching them."""
        for queue in queues:
            self._queue(queue).state.paused = True

    def resume(self, queues: Iterable[QueueRef]) -> None:
        """Takes queues in again."""
        for queue in queues:
            held = self._queue(queue)
            held.state.paused = False
            held.wake()
        self._arrived.set()

    def _queue(self, queue: QueueRef) -> _PolledQueue:
        held = self._held.get(queue)
        if held is None:
            raise ClientError(f"{queue} is not assigned to this consumer; it has {self.assignment}")
        return held

    def _check_running(self, what: str) -> None:
        if self._closed:
            raise ClientClosed(f"{what}: consumer {self._group!r} is closed")
        if not self._started:
            raise ClientError(f"{what}: consumer {self._group!r} is not started: use `async with` or start()")
        self.session.check_loop(f"consumer {self._group!r}")

    def _move(self, queue: QueueRef, offset: int) -> None:
        held = self._held.get(queue)
        if held is None:
            return
        held.drop()
        if self._auto_commit:
            self._offsets.update(queue, offset, may_go_back=True)
        self._begin(queue, offset)
        self._held[queue].state.paused = held.state.paused

    # offsets

    async def _persist_forever(self) -> None:
        while True:
            await asyncio.sleep(self.config.persist_interval_ms / 1000)
            await self._persist(list(self._held))

    async def _persist(self, queues: Iterable[QueueRef]) -> None:
        if self._auto_commit:
            await self._write(queues)

    async def _write(self, queues: Iterable[QueueRef]) -> None:
        try:
            await self._offsets.persist(queues)
        except TandemError as error:
            log.warning("group %s: offsets are not written this time: %s", self._group, error)
