"""PushConsumer: calls a listener for every message of its subscriptions, with the rest of its group.

Clustering: queues are shared out among the members, offsets live on the broker, a failed message comes back through the
retry topic and ends in the dead letter queue. Broadcasting: every member gets everything, offsets live in a local file,
a failed message is logged and skipped. Concurrent: many messages at a time. Ordered: the messages of one queue one
after the other, under a lock on the broker that keeps other members away.

At-least-once: an offset is committed only when every message before it is done.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from tandemq.client.config import ClientConfig, MessageModel
from tandemq.client.consumption import Action, Listener, ListenerCaller
from tandemq.client.fetcher import QueueFetcher
from tandemq.client.ids import client_id, local_ip
from tandemq.client.message import ReceivedMessage
from tandemq.client.offsets import LocalOffsets, OffsetStore, RemoteOffsets
from tandemq.client.process_queue import ProcessQueue
from tandemq.client.push_requests import PushRequests
from tandemq.client.queue_lock import QueueLocks
from tandemq.client.rebalance import Change
from tandemq.client.rebalancer import Rebalancer
from tandemq.client.send_back import SendBack
from tandemq.client.session import Session, session_for
from tandemq.client.start_offset import start_offset
from tandemq.client.subscription import TAG, subscription
from tandemq.codec.heartbeat import ConsumerGroupInfo, Subscription
from tandemq.errors import ClientError, TandemError
from tandemq.model.topic import RETRY_PREFIX, QueueRef, group_name_problem

log = logging.getLogger("tandemq.client")

LOCAL_RETRY_S = 5.0
"""A message that could be given back to nobody is tried again here after this long."""
CLOSE_WAIT_S = 30.0
"""How long `close` waits for listeners that are at work."""


class Assigned:
    """One queue this consumer holds: its state and the tasks that work on it."""

    def __init__(self, state: ProcessQueue) -> None:
        self.state = state
        self.fetcher: QueueFetcher | None = None
        self.tasks: list[asyncio.Task[None]] = []
        self.arrived = asyncio.Event()
        """Ordered: something to consume, or a reason to look again."""
        self.consuming = asyncio.Lock()
        """Ordered: held while the listener has messages of this queue."""

    def wake(self) -> None:
        self.arrived.set()
        if self.fetcher is not None:
            self.fetcher.wake.set()


class PushConsumer:
    """`consumer.subscribe(topic, "TagA || TagB")`, then `start`. The listener gets lists of messages."""

    def __init__(
        self,
        group: str,
        listener: Listener,
        *,
        namesrv: str | None = None,
        config: ClientConfig | None = None,
        session: Session | None = None,
        ordered: bool = False,
        model: MessageModel = MessageModel.CLUSTERING,
    ) -> None:
        problem = group_name_problem(group)
        if problem:
            raise ClientError(problem)
        self._group = group
        self.session, self._owns_session = session_for(session, config, namesrv)
        self.config = self.session.config
        self.model = model
        self.ordered = ordered
        self._caller = ListenerCaller(
            listener, self.config.consume_concurrency, self.config.consume_timeout_minutes * 60
        )
        self._subscriptions: dict[str, Subscription] = {}
        self._held: dict[QueueRef, Assigned] = {}
        self._offsets: OffsetStore = self._offset_store()
        self._send_back = SendBack(self.session, group, self.reconsume_max)
        self._locks = QueueLocks(self.session, group)
        self._rebalancer = Rebalancer(
            self.session, group, model, topics=self.topics, held=self._held_of, apply=self._apply
        )
        self._ready: asyncio.Queue[tuple[QueueRef, Assigned, list[ReceivedMessage]]] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        self._workers: list[asyncio.Task[None]] = []
        self._started = False
        self._busy = 0
        """Workers that have messages in hand."""
        self._finished = asyncio.Event()
        self._requests = PushRequests(self)

    def _offset_store(self) -> OffsetStore:
        if self.model is MessageModel.CLUSTERING:
            return RemoteOffsets(self.session, self._group)
        owner = client_id(local_ip(), self.config.instance_name or "DEFAULT", self.config.unit_name)
        return LocalOffsets(Path(self.config.offset_dir), owner, self._group)

    @property
    def reconsume_max(self) -> int:
        """Retries before the dead letter queue."""
        return 16 if self.config.reconsume_max < 0 else self.config.reconsume_max

    # what the session asks

    @property
    def group(self) -> str:
        return self._group

    def topics(self) -> Iterable[str]:
        return tuple(self._subscriptions)

    def consumer_info(self) -> ConsumerGroupInfo | None:
        return ConsumerGroupInfo(
            group=self._group,
            message_model=self.model.value,
            consume_from=self.config.consume_from.value,
            subscriptions=tuple(self._subscriptions.values()),
        )

    # life

    def subscribe(self, topic: str, expression: str = "*", kind: str = TAG) -> None:
        """Adds or replaces the subscription of a topic; also while running."""
        self._subscriptions[topic] = subscription(topic, expression, kind, self.session.clock.wall_ms())
        if self._started:
            self.session.heartbeat_soon()
            self._rebalancer.soon()

    async def unsubscribe(self, topic: str) -> None:
        """Gives the topic's queues back, with what was consumed of them committed."""
        self._subscriptions.pop(topic, None)
        for queue in self._held_of(topic):
            await self._give_up(queue)
        if self._started:
            self.session.heartbeat_soon()

    async def start(self) -> None:
        if not self._subscriptions:
            raise ClientError(f"consumer {self._group!r} subscribes to nothing: call subscribe() before start()")
        if self.model is MessageModel.CLUSTERING:
            retry_topic = RETRY_PREFIX + self._group
            self._subscriptions[retry_topic] = subscription(retry_topic, "*", TAG, self.session.clock.wall_ms())
        await self.session.start()
        self.session.join(self)
        self._started = True
        for topic in self.topics():
            await self.session.subscribe_queues(topic)
        for item in self._subscriptions.values():
            await self.session.check_filter(self._group, item)
        await self.session.heartbeat()
        workers = 0 if self.ordered else self.config.consume_concurrency
        self._workers = [asyncio.create_task(self._work(), name=f"tandemq-{self._group}") for _ in range(workers)]
        jobs = [self._rebalancer.run(), self._persist_forever()]
        if self.ordered and self.model is MessageModel.CLUSTERING:
            jobs.append(self._locks.renew_forever(self.states))
        self._tasks = [asyncio.create_task(job, name=f"tandemq-{self._group}") for job in jobs]

    async def close(self) -> None:
        """Stops pulling, lets listeners finish, commits, leaves the group."""
        if not self._started:
            self._offsets.close()
            return
        self._started = False
        await _cancelled(self._tasks)  # no queue is won or lost from here on
        held = list(self._held)
        for assigned in self._held.values():
            assigned.state.paused = True
            if assigned.fetcher is not None:
                assigned.tasks[0].cancel()
        await self._drain()
        await _cancelled(self._workers)
        await self._persist(held)
        for queue in held:
            self._drop(queue)
        if self.ordered and self.model is MessageModel.CLUSTERING:
            await self._locks.release(held)
        self._rebalancer.close()
        self.session.off_push(self._requests)
        await self.session.leave(self)
        self._caller.close()
        self._offsets.close()
        if self._owns_session:
            await self.session.close()

    async def __aenter__(self) -> "PushConsumer":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _drain(self) -> None:
        """Until what listeners have in hand is done; what they have not begun is left for the next owner."""
        while not self._ready.empty():
            self._ready.get_nowait()
        try:
            async with asyncio.timeout(CLOSE_WAIT_S):
                for assigned in list(self._held.values()):
                    async with assigned.consuming:
                        pass
                while self._busy:
                    self._finished.clear()
                    await self._finished.wait()
        except TimeoutError:
            log.warning("group %s: listeners still at work after %.0f s are left behind", self._group, CLOSE_WAIT_S)

    # what is held

    @property
    def assignment(self) -> tuple[QueueRef, ...]:
        """The queues this consumer has now."""
        return tuple(sorted(self._held))

    def pause(self) -> None:
        """Stops asking for messages; what is cached is still consumed."""
        for assigned in self._held.values():
            assigned.state.paused = True

    def resume(self) -> None:
        for assigned in self._held.values():
            assigned.state.paused = False
            assigned.wake()

    def _held_of(self, topic: str) -> Collection[QueueRef]:
        return [queue for queue in self._held if queue.topic == topic]

    async def _apply(self, topic: str, due: Change) -> bool:
        for queue in due.lost:
            await self._give_up(queue)
        complete = True
        for queue in await self._lockable(due.won):
            complete &= await self._take_over(queue)
        return complete and (not self.ordered or all(queue in self._held for queue in due.won))

    async def _lockable(self, won: Iterable[QueueRef]) -> Iterable[QueueRef]:
        if not self.ordered or self.model is MessageModel.BROADCASTING:
            return won
        return sorted(await self._locks.acquire(won))

    async def _take_over(self, queue: QueueRef) -> bool:
        try:
            offset = await start_offset(self.session, self._offsets, queue, self.config)
        except TandemError as error:
            log.warning("group %s: %s is taken later: its offset can't be read: %s", self._group, queue, error)
            return False
        log.info("group %s takes %s at %d", self._group, queue, offset)
        self._begin(queue, offset)
        return True

    def _begin(self, queue: QueueRef, offset: int) -> None:
        now = self.session.clock.monotonic()
        state = ProcessQueue(next_offset=offset)
        state.locked_at = now if self.ordered else None
        assigned = Assigned(state)
        assigned.fetcher = QueueFetcher(
            self.session,
            self._group,
            queue,
            state,
            self._subscriptions[queue.topic],
            offsets=self._offsets,
            deliver=lambda messages: self._deliver(queue, assigned, messages),
            moved=lambda to: self._restart(queue, assigned, to),
            ready=lambda: self._may_consume(state),
            span_limited=not self.ordered,
        )
        assigned.tasks.append(asyncio.create_task(assigned.fetcher.run(), name=f"tandemq-pull-{queue}"))
        if self.ordered:
            assigned.tasks.append(asyncio.create_task(self._work_in_order(queue, assigned)))
        self._held[queue] = assigned

    def _restart(self, queue: QueueRef, assigned: Assigned, offset: int) -> None:
        """Goes on elsewhere in the queue: the broker moved us, or somebody reset the group's offset."""
        if self._held.get(queue) is not assigned:
            return
        self._drop(queue)
        self._offsets.update(queue, offset, may_go_back=True)
        self._begin(queue, offset)

    def _drop(self, queue: QueueRef) -> None:
        """From now on nobody touches this queue's offset through the old state."""
        assigned = self._held.pop(queue, None)
        if assigned is not None:
            assigned.state.dropped = True
            assigned.wake()
            for task in assigned.tasks:
                if task is not asyncio.current_task():
                    task.cancel()

    async def _give_up(self, queue: QueueRef) -> None:
        """Another member gets it: finish the listener's call (ordered), commit, unlock."""
        log.info("group %s gives %s up", self._group, queue)
        assigned = self._held[queue]
        assigned.state.paused = True
        if self.ordered:
            try:
                async with asyncio.timeout(CLOSE_WAIT_S):
                    await assigned.consuming.acquire()
            except TimeoutError:
                log.warning("group %s: the listener still has messages of %s", self._group, queue)
        self._drop(queue)
        await self._persist([queue])
        self._offsets.forget(queue)
        if self.ordered and self.model is MessageModel.CLUSTERING:
            await self._locks.release([queue])

    def _may_consume(self, state: ProcessQueue) -> bool:
        if not self.ordered or self.model is MessageModel.BROADCASTING:
            return True
        return state.locked(self.session.clock.monotonic())

    # what brokers ask

    def states(self) -> Mapping[QueueRef, ProcessQueue]:
        return {queue: assigned.state for queue, assigned in self._held.items()}

    def committed(self, queue: QueueRef) -> int | None:
        """How far a queue is consumed, as known here."""
        return self._offsets.current(queue)

    def move(self, queue: QueueRef, offset: int) -> None:
        """Goes on at another offset of a queue that is held."""
        assigned = self._held.get(queue)
        if assigned is not None:
            self._restart(queue, assigned, offset)

    async def try_now(self, message: ReceivedMessage) -> Action:
        """Shows a message to the listener, outside of all queues."""
        return await self._caller.call([message])

    # consuming

    def _deliver(self, queue: QueueRef, assigned: Assigned, messages: list[ReceivedMessage]) -> None:
        if self.ordered:
            assigned.arrived.set()
            return
        size = self.config.consume_batch_size
        for start in range(0, len(messages), size):
            self._ready.put_nowait((queue, assigned, messages[start : start + size]))

    async def _work(self) -> None:
        """One of consumeThreadMax workers of a concurrent consumer."""
        while True:
            queue, assigned, messages = await self._ready.get()
            if assigned.state.dropped:
                continue
            self._busy += 1
            try:
                await self._consume(queue, assigned, messages)
            finally:
                self._busy -= 1
                self._finished.set()

    async def _consume(self, queue: QueueRef, assigned: Assigned, messages: list[ReceivedMessage]) -> None:
        action = await self._caller.call(messages)
        done = messages
        if action is Action.LATER:
            done = await self._give_back(queue, assigned, messages)
        offset = assigned.state.remove(done)
        if offset is not None and not assigned.state.dropped:
            self._offsets.update(queue, offset)
        if assigned.fetcher is not None:
            assigned.fetcher.wake.set()

    async def _give_back(
        self, queue: QueueRef, assigned: Assigned, messages: list[ReceivedMessage]
    ) -> list[ReceivedMessage]:
        """The messages that are out of our hands now; the rest is tried again here, later."""
        if self.model is MessageModel.BROADCASTING:
            log.warning("a broadcast message is not retried: %s", messages[0])
            return messages
        done: list[ReceivedMessage] = []
        kept: list[ReceivedMessage] = []
        for message in messages:
            (done if await self._send_back.later(message) else kept).append(message)
        if kept:
            for message in kept:
                message.reconsume_times += 1
            asyncio.get_running_loop().call_later(LOCAL_RETRY_S, self._ready.put_nowait, (queue, assigned, kept))
        return done

    async def _work_in_order(self, queue: QueueRef, assigned: Assigned) -> None:
        """The one worker of a queue of an ordered consumer."""
        state = assigned.state
        while not state.dropped:
            if not state.count or not self._may_consume(state):
                await self._wait_for_turn(assigned)
                continue
            async with assigned.consuming:
                if state.dropped:
                    return
                pause = await self._consume_in_order(queue, assigned)
            if pause:
                await asyncio.sleep(pause)

    async def _wait_for_turn(self, assigned: Assigned) -> None:
        assigned.arrived.clear()
        try:
            async with asyncio.timeout(1.0):
                await assigned.arrived.wait()
        except TimeoutError:
            pass  # the lock may have come back without an event

    async def _consume_in_order(self, queue: QueueRef, assigned: Assigned) -> float:
        """One call of the listener; the pause before the next one."""
        state = assigned.state
        messages = state.take(self.config.consume_batch_size)
        action = await self._caller.call(messages)
        if action is Action.LATER and not await self._exhausted(messages):
            state.put_back()
            return self.config.suspend_ms / 1000
        offset = state.commit()
        if offset is not None and not state.dropped:
            self._offsets.update(queue, offset)
        if assigned.fetcher is not None:
            assigned.fetcher.wake.set()
        return 0.0

    async def _exhausted(self, messages: list[ReceivedMessage]) -> bool:
        """Counts the failed try; True when all of them used up their tries and went to the dead letters."""
        limit = self.config.reconsume_max
        for message in messages:
            message.reconsume_times += 1
        if limit < 0 or any(message.reconsume_times <= limit for message in messages):
            return False
        if self.model is MessageModel.BROADCASTING:
            log.warning("a broadcast message is given up after %d tries: %s", limit, messages[0])
            return True
        return all([await self._send_back.give_up(message) for message in messages])

    # offsets

    async def _persist_forever(self) -> None:
        while True:
            await asyncio.sleep(self.config.persist_interval_ms / 1000)
            await self._persist(list(self._held))

    async def _persist(self, queues: Iterable[QueueRef]) -> None:
        try:
            await self._offsets.persist(queues)
        except TandemError as error:
            log.warning("group %s: offsets are not written this time: %s", self._group, error)


async def _cancelled(tasks: Iterable[asyncio.Task[None]]) -> None:
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
