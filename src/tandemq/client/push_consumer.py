"""PushConsumer: calls a listener for every message of its subscriptions, together with the rest of its group.

Clustering: queues are shared out among the members, offsets live on the broker, a failed message comes back through the
retry topic and ends in the dead letter queue. Broadcasting: every member gets everything, offsets live in a local file,
a failed message is logged and skipped. Concurrent: many messages at a time. Ordered: the messages of one queue one
after the other, under a lock on the broker that keeps other members away.

At-least-once: an offset is committed only when every message before it is done. An ordered queue is given up, moved or
closed only when its call has ended.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

from tandemq.client.allocation import Change
from tandemq.client.arguments import check_callable, check_close_timeout, check_flag, check_group
from tandemq.client.background import Background, cancelled
from tandemq.client.config import ClientConfig, MessageModel
from tandemq.client.consumption import ConcurrentConsumption, Consumption, OrderedConsumption
from tandemq.client.fetcher import QueueFetcher
from tandemq.client.held_queue import HeldQueue
from tandemq.client.ids import client_id, local_ip
from tandemq.client.listener import Action, Answer, Listener, ListenerCaller
from tandemq.client.message import ReceivedMessage
from tandemq.client.offsets import LocalOffsets, OffsetStore, RemoteOffsets
from tandemq.client.process_queue import CacheBudget, ProcessQueue
from tandemq.client.push_requests import PushRequests
from tandemq.client.queue_locks import QueueLocks
from tandemq.client.rebalancer import Rebalancer
from tandemq.client.send_back import SendBack
from tandemq.client.session import Session, session_for
from tandemq.client.shutdown import stop_signals
from tandemq.client.start_offset import start_offset
from tandemq.client.subscription import ALL, TAG, subscription
from tandemq.client.telemetry import current_telemetry
from tandemq.codec.codes import RequestCode
from tandemq.codec.command import Command
from tandemq.codec.heartbeat import ConsumerGroupInfo, Subscription
from tandemq.errors import ClientClosed, ClientError, TandemError
from tandemq.model.topic import RETRY_PREFIX, QueueRef

log = logging.getLogger("tandemq.client")

CLOSE_S = 30.0
"""How long `close` waits for calls of the listener, unless told otherwise."""
CANCEL_S = 2.0
"""How long `close` then waits for those that it cancelled."""
PATIENCE_S = 0.8
"""How long a queue that another member may hold is won before its lock is asked for; less than a round later."""
SLOW_S = 30.0
"""After this long a queue that is to be given up and has a call under way is mentioned in the log."""

RETRIES = 16
"""Retries before the dead letter queue where `maxReconsumeTimes` is -1."""

F = TypeVar("F", bound=Callable[..., Any])


def by_decorator(_: object) -> Answer:
    """Stands for the listener of a consumer whose listeners are given with `@consumer.on`."""
    raise AssertionError("it is never called")


class PushConsumer:
    """Calls a listener for messages of topics.

        async def listener(messages):
            for message in messages:
                print(message.topic, message.body)

        consumer = PushConsumer("printers", listener, namesrv="127.0.0.1:9876")
        consumer.subscribe("orders", "new || paid")
        async with consumer:
            await asyncio.sleep(1)

    Or with a function for each topic, until SIGTERM or SIGINT:

        consumer = PushConsumer("printers", namesrv="127.0.0.1:9876")

        @consumer.on("orders")
        async def print_order(message):
            print(message.body)

        await consumer.run()

    `ordered` calls for one message of a queue after the other; `model` BROADCASTING gives every member everything.
    """

    def __init__(
        self,
        group: str,
        listener: Listener = by_decorator,
        *,
        namesrv: str | None = None,
        config: ClientConfig | None = None,
        session: Session | None = None,
        ordered: bool = False,
        model: MessageModel = MessageModel.CLUSTERING,
    ) -> None:
        self._group = check_group(group)
        check_callable(listener, "listener")
        if not isinstance(model, MessageModel):
            raise ClientError(f"model={model!r}: a MessageModel is needed")
        self.session, self._owns_session = session_for(session, config, namesrv)
        self.config = self.session.config
        self.model = model
        self.ordered = check_flag(ordered, "ordered")
        self._caller = ListenerCaller(
            concurrency=self.config.consume_concurrency,
            batch_size=self.config.consume_batch_size,
            timeout_s=self.config.consume_timeout_minutes * 60,
            group=group,
            telemetry=current_telemetry(),
        )
        if listener is not by_decorator:
            self._caller.add(listener)
        self._subscriptions: dict[str, Subscription] = {}
        self._held: dict[QueueRef, HeldQueue] = {}
        self._budget = CacheBudget(self.config.cache_bytes_max << 20)
        self._offsets: OffsetStore | None = None
        self._consumption: Consumption | None = None
        self._locks = QueueLocks(self.session, group)
        self._rebalancer: Rebalancer | None = None
        self._requests: PushRequests | None = None
        self._background = Background(f"group {group}")
        self._releases: set[asyncio.Task[None]] = set()
        """Queues that are given up or moved when their call has ended."""
        self._won_at: dict[QueueRef, float] = {}
        """When queues were won whose lock is not ours yet."""
        self._paused = False
        self._started = False
        self._closing: asyncio.Task[None] | None = None
        self._close_wanted = asyncio.Event()

    @property
    def reconsume_max(self) -> int:
        """Retries before the dead letter queue."""
        return RETRIES if self.config.reconsume_max < 0 else self.config.reconsume_max

    @property
    def _locked(self) -> bool:
        """Whether queues are locked on the broker."""
        return self.ordered and self.model is MessageModel.CLUSTERING

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
        """Returns the subscribed topics, the group's retry topic among them."""
        return tuple(self._subscriptions)

    def consumer_info(self) -> ConsumerGroupInfo | None:
        """Returns what heartbeats tell brokers about this consumer."""
        return ConsumerGroupInfo(
            group=self._group,
            message_model=self.model.value,
            consume_from=self.config.consume_from.value,
            subscriptions=tuple(self._subscriptions.values()),
        )

    # subscriptions

    def subscribe(self, topic: str, expression: str = ALL, kind: str = TAG) -> None:
        """Adds or replaces the subscription of a topic; also while running.

            consumer.subscribe("orders", "new || paid")
            consumer.subscribe("books", "price > 5 AND kind = 'novel'", SQL92)

        A new filter counts for what is fetched from now on; messages in the cache are still delivered.
        """
        self._subscriptions[topic] = subscription(topic, expression, kind, self.session.clock.wall_ms())
        if self._started:
            if not self._caller.serves(topic):
                log.error("group %s: nothing handles topic %s: give it a function with on()", self._group, topic)
            for queue in self._held_of(topic):
                self._held[queue].fetch_anew()
            self.session.heartbeat_soon()
            self._rebalance_soon()

    def on(self, topic: str, expression: str = ALL, kind: str = TAG, *, batch: bool = False) -> Callable[[F], F]:
        """Subscribes to a topic and makes a function its listener; also while running.

            @consumer.on("orders", "new || paid")
            async def handle(message):
                print(message.body)

            @consumer.on("clicks", batch=True)
            def count(messages):
                print(len(messages))

        The function gets one message, or with `batch` a list of at most `consumeMessageBatchMaxSize`. It answers as
        every listener does: None or Action.SUCCESS, Action.LATER, or an exception. A topic has one function: give it
        all the tags, or unsubscribe before another one takes over.
        """

        def registered(function: F) -> F:
            check_callable(function, "the decorated function")
            present = self._caller.function_of(topic)
            if topic in self._subscriptions and present not in (None, function):
                raise ClientError(
                    f"topic {topic!r} is handled by {present!r} already: a topic has one function and one filter, "
                    "which may name several tags"
                )
            self._caller.add(function, topic, takes_list=batch)
            self.subscribe(topic, expression, kind)
            return function

        return registered

    async def unsubscribe(self, topic: str) -> None:
        """Gives the topic's queues back, with what was consumed of them committed.

            await consumer.unsubscribe("orders")

        Returns when they are given back; an ordered queue with a call under way follows when the call has ended.
        """
        self._subscriptions.pop(topic, None)
        if self._started:
            self.session.heartbeat_soon()
        releases = [self._release(queue) for queue in self._held_of(topic)]
        if not self._in_listener():
            await asyncio.gather(*releases)

    # life

    async def start(self) -> None:
        """Joins the group and begins to consume; `async with` does it too.

        Raises ClientError if nothing is subscribed, or handles a topic that is; ReplyError for a filter that brokers
        refuse. After a failure it may be called again.
        """
        if self._closing is not None:
            raise ClientClosed(f"consumer {self._group!r} was closed: make a new one")
        if self._started:
            raise ClientError(f"consumer {self._group!r} is started already")
        if not self._subscriptions:
            raise ClientError(f"consumer {self._group!r} subscribes to nothing: call subscribe() before start()")
        for topic in self.topics():
            if not topic.startswith(RETRY_PREFIX) and not self._caller.serves(topic):
                raise ClientError(
                    f"nothing handles topic {topic!r}: give the consumer a listener, or use on({topic!r})"
                )
        if self.model is MessageModel.CLUSTERING:
            retry_topic = RETRY_PREFIX + self._group
            self._subscriptions[retry_topic] = subscription(retry_topic, ALL, TAG, self.session.clock.wall_ms())
        await self.session.start()
        self.session.join(self)
        self._started = True
        try:
            await self._join_group()
        except BaseException:
            self._started = False
            await self._leave_group()
            raise
        self._begin_work()

    async def _join_group(self) -> None:
        self._offsets = self._offset_store()
        self._consumption = self._consumption_kind(self._offsets)
        self._rebalancer = Rebalancer(
            self.session, self._group, self.model, topics=self.topics, held=self._staying_of, apply=self._apply
        )
        self._requests = PushRequests(self)
        for topic in self.topics():
            await self.session.subscribe_queues(topic)
        for item in tuple(self._subscriptions.values()):
            await self.session.check_filter(self._group, item)
        await self.session.heartbeat()

    def _begin_work(self) -> None:
        assert self._rebalancer is not None
        self._background.start("rebalance", self._rebalancer.run)
        self._background.start("offsets", self._persist_forever)
        if self._locked:
            self.session.on_master_lost.append(self._master_lost)
            self.session.on_push(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, self._members_changed)
            self._background.start("locks", self._renew_locks)

    async def _renew_locks(self) -> None:
        await self._locks.renew_forever(self.states, self._lost_lock, self._regained_lock)

    def _offset_store(self) -> OffsetStore:
        if self.model is MessageModel.CLUSTERING:
            return RemoteOffsets(self.session, self._group)
        owner = client_id(local_ip(), self.config.instance_name or "DEFAULT", self.config.unit_name)
        return LocalOffsets(Path(self.config.offset_dir), owner, self._group)

    def _consumption_kind(self, offsets: OffsetStore) -> Consumption:
        returns = SendBack(self.session, self._group, self.reconsume_max)
        if self.ordered:
            return OrderedConsumption(
                self._caller,
                self.config,
                self.model,
                offsets,
                returns,
                may_consume=lambda h: self._may_consume(h.state),
            )
        return ConcurrentConsumption(self._caller, self.config, self.model, offsets, returns)

    async def close(self, timeout: float | None = CLOSE_S) -> None:
        """Drains: begins no more calls, waits for those that run, commits what was handled, leaves the group.

            await consumer.close(timeout=10)

        After `timeout` seconds (None: without a limit) calls of coroutine functions are cancelled; their messages come
        again. A plain function can't be cancelled: if it still runs, that is logged, its messages come again, and the
        lock on its ordered queue is left to expire. What waits in the cache comes again to the next member.
        """
        check_close_timeout(timeout)
        self.session.check_loop(f"consumer {self._group!r}")
        self.check_outside_listener("close()")
        self._close_wanted.set()
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close(timeout))
        await asyncio.shield(self._closing)

    async def _close(self, timeout: float | None) -> None:
        try:
            if self._started:
                self._started = False
                await self._drain(timeout)
        finally:
            await self._leave_group()
            self._caller.close()
            if self._owns_session:
                await self.session.close()

    async def _drain(self, timeout: float | None) -> None:
        assert self._consumption is not None
        self._consumption.stop()
        await self._background_but_locks_ended()
        for held in self._held.values():
            held.stop_fetching()
        try:
            async with asyncio.timeout(timeout):
                await self._consumption.ended()
        except TimeoutError:
            await self._cut_short(timeout)
        if self._consumption.running:
            await cancelled(self._releases)
        else:
            await asyncio.gather(*self._releases, return_exceptions=True)
        await self._persist(list(self._held))
        for held in self._held.values():
            held.drop()
        self._held.clear()
        if self._locked:
            busy = {messages[0].queue for messages in self._caller.in_threads}
            await self._locks.release(self._locks.asked - busy)

    async def _background_but_locks_ended(self) -> None:
        """Ends what wins and loses queues; locks are still renewed while calls run."""
        await self._background.stop()
        if self._locked:
            self._background.start("locks", self._renew_locks)

    async def _cut_short(self, timeout: float | None) -> None:
        """Cancels the calls that are left, and says which can't be."""
        assert self._consumption is not None
        log.warning("group %s: %d calls did not end in %s s", self._group, self._consumption.running, timeout)
        self._consumption.cancel()
        try:
            async with asyncio.timeout(CANCEL_S):
                await self._consumption.ended()
        except TimeoutError:
            log.error("group %s: %d calls do not end although cancelled", self._group, self._consumption.running)
        for messages in self._caller.in_threads:
            log.error("group %s: a plain function still has %s after the close", self._group, messages[0])

    async def _leave_group(self) -> None:
        """Undoes `start`, as far as it came."""
        await self._background.stop()
        self.session.forget_listener(self._master_lost)
        self.session.off_push(self)
        if self._rebalancer is not None:
            self._rebalancer.close()
        if self._requests is not None:
            self.session.off_push(self._requests)
        await self.session.leave(self)
        if self._offsets is not None:
            self._offsets.close()
        self._rebalancer, self._requests, self._offsets = None, None, None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def run(self, *, close_timeout: float | None = CLOSE_S) -> None:
        """Consumes until SIGTERM or SIGINT, or until somebody calls `close`; then drains.

        consumer = PushConsumer("printers", listener, namesrv="127.0.0.1:9876")
        consumer.subscribe("orders")
        await consumer.run(close_timeout=10)
        """
        check_close_timeout(close_timeout)
        async with stop_signals() as stop:
            await self.start()
            waits = [asyncio.ensure_future(event.wait()) for event in (stop, self._close_wanted)]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()
                await self.close(close_timeout)

    def check_outside_listener(self, what: str) -> None:
        """Raises ClientError inside a listener of this consumer, where `what` would wait for itself."""
        if self._in_listener() or self._caller.is_inside:
            raise ClientError(
                f"{what} waits for the listeners of group {self._group!r} and was called by one: "
                "set an event there and call it outside, or start it with asyncio.create_task"
            )

    def _in_listener(self) -> bool:
        try:
            task = asyncio.current_task()
        except RuntimeError:
            return False
        return self._consumption is not None and self._consumption.is_call(task)

    # what is held

    @property
    def assignment(self) -> tuple[QueueRef, ...]:
        """The queues that this consumer has now."""
        return tuple(sorted(self._held))

    def pause(self) -> None:
        """Stops asking for messages, also of queues won later; what is cached is still consumed.

        consumer.pause()
        consumer.resume()
        """
        self._paused = True
        for held in self._held.values():
            held.state.paused = True

    def resume(self) -> None:
        """Asks for messages again."""
        self._paused = False
        for held in self._held.values():
            held.state.paused = False
            held.wake()

    def _held_of(self, topic: str) -> Collection[QueueRef]:
        return [queue for queue in self._held if queue.topic == topic]

    def _staying_of(self, topic: str) -> Collection[QueueRef]:
        return [queue for queue, held in self._held.items() if queue.topic == topic and not held.leaving]

    def _rebalance_soon(self) -> None:
        if self._rebalancer is not None:
            self._rebalancer.soon()

    async def _apply(self, topic: str, due: Change) -> bool:
        releases = [self._release(queue) for queue in due.lost]
        if not self.ordered:
            await asyncio.gather(*releases)
        asked_at = self.session.clock.monotonic()
        won = await self._lockable(topic, due.won)
        complete = all(await asyncio.gather(*(self._take_over(queue, asked_at) for queue in won)))
        return complete and (not self.ordered or all(queue in self._held for queue in due.won))

    async def _lockable(self, topic: str, won: Collection[QueueRef]) -> Iterable[QueueRef]:
        if not self._locked:
            return won
        return sorted((await self._locks.acquire(self._due(topic, won))).granted)

    def _due(self, topic: str, won: Collection[QueueRef]) -> Collection[QueueRef]:
        """Returns the queues whose lock may be asked for now.

        One that another member may hold is asked for a moment later: that member learns of the change at the same time
        and renews its lock first. Otherwise a master that has just taken over, and knows of no lock, would give away
        the lock of a queue whose call is under way.
        """
        now = self.session.clock.monotonic()
        self._won_at = {
            queue: since for queue, since in self._won_at.items() if queue.topic != topic or queue in won
        } | {queue: self._won_at.get(queue, now) for queue in won}
        alone = self._rebalancer is not None and self._rebalancer.is_alone
        return [
            queue
            for queue in won
            if queue in self._held
            or (alone and self.session.is_settled(queue.broker_name))
            or now - self._won_at[queue] >= PATIENCE_S
        ]

    async def _take_over(self, queue: QueueRef, locked_at: float) -> bool:
        """Begins a queue that was won; returns False if it has to be tried again."""
        held = self._held.get(queue)
        if held is not None:  # it was to be given up, but its call has not ended yet
            if held.state.dropped:
                return False
            held.leaving = False
            held.wake()
            if self._consumption is not None:
                self._consumption.wake(held)
            return True
        assert self._offsets is not None
        try:
            offset = await start_offset(self.session, self._offsets, queue, self.config)
        except TandemError as error:
            log.warning("group %s: %s is taken later: its offset can't be read: %s", self._group, queue, error)
            return False
        if queue.topic not in self._subscriptions or not self._started:
            if self._locked:
                await self._locks.release([queue])
            return True
        log.info("group %s takes %s at %d", self._group, queue, offset)
        self._won_at.pop(queue, None)
        self._begin(queue, offset, locked_at)
        await self._persist([queue])  # a new group's place, before anybody else can win the queue
        return True

    def _begin(self, queue: QueueRef, offset: int, locked_at: float | None) -> None:
        assert self._consumption is not None
        consumption = self._consumption
        state = ProcessQueue(next_offset=offset, budget=self._budget, paused=self._paused)
        state.locked_at = locked_at
        held = self._held[queue] = HeldQueue(queue, state)
        held.fetch_with(
            QueueFetcher(
                self.session,
                self._group,
                queue,
                state,
                lambda: self._subscriptions.get(queue.topic) or Subscription(topic=queue.topic),
                offsets=self._offsets,
                deliver=lambda messages: consumption.offer(held, messages),
                moved=lambda to: self._move(held, to),
                ready=lambda: held.is_open and self._may_consume(state),
                span_limited=not self.ordered,
            )
        )

    def _release(self, queue: QueueRef) -> "asyncio.Task[None]":
        """Gives a queue up once no call has messages of it that must not run twice."""
        held = self._held[queue]
        if not held.leaving:
            log.info("group %s gives %s up", self._group, queue)
        held.leaving = True
        return self._in_background(self._give_up(held))

    def _in_background(self, work: Any) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._releases.add(task)
        task.add_done_callback(self._releases.discard)
        return task

    async def _give_up(self, held: HeldQueue) -> None:
        await self._quiet(held)
        if not held.leaving or self._held.get(held.queue) is not held:
            return  # it is ours again, or was given up already
        # It stays in the list until it is committed and unlocked, so that it is not won again in between.
        held.drop()
        await self._persist([held.queue])
        if self._offsets is not None:
            self._offsets.forget(held.queue)
        if held.queue in self._locks.asked:
            await self._locks.release([held.queue])
        if self._held.get(held.queue) is held:
            del self._held[held.queue]

    async def _quiet(self, held: HeldQueue) -> None:
        """Returns when the consumption has let go of a queue; mentions one that takes long."""
        assert self._consumption is not None
        waiting = asyncio.ensure_future(self._consumption.quiet(held))
        try:
            if not (await asyncio.wait([waiting], timeout=SLOW_S))[0]:
                log.warning(
                    "group %s: %s is given up when its call ends, which takes longer than %g s",
                    self._group,
                    held.queue,
                    SLOW_S,
                )
            await waiting
        finally:
            waiting.cancel()

    def _move(self, held: HeldQueue, offset: int) -> None:
        """Goes on elsewhere in a queue: the broker moved us, or somebody reset the group's offset."""
        if self._held.get(held.queue) is held:
            held.moving = True
            self._in_background(self._begin_elsewhere(held, offset))

    async def _begin_elsewhere(self, held: HeldQueue, offset: int) -> None:
        await self._quiet(held)
        if self._held.get(held.queue) is not held or held.state.dropped or self._offsets is None or not self._started:
            return
        held.drop()
        self._offsets.update(held.queue, offset, may_go_back=True)
        if held.queue.topic in self._subscriptions:
            self._begin(held.queue, offset, held.state.locked_at)
            self._held[held.queue].leaving = held.leaving

    def _lost_lock(self, queue: QueueRef) -> None:
        """Drops a queue whose lock another member holds: its offsets count now, ours are not written any more.

        The queue stays in the list until its call has ended, so that it is not won again before.
        """
        held = self._held.get(queue)
        if held is not None and self._offsets is not None:
            held.drop()
            self._offsets.forget(queue)
            self._release(queue)

    def _regained_lock(self, queue: QueueRef) -> None:
        """Goes on with a queue that waited for its lock."""
        held = self._held.get(queue)
        if held is not None and self._consumption is not None:
            held.wake()
            self._consumption.wake(held)

    def _master_lost(self, broker_name: str) -> None:
        """Trusts no lock of a master that is gone: the next calls of its queues wait until they are granted anew."""
        for queue, held in self._held.items():
            if queue.broker_name == broker_name:
                held.state.locked_at = None
        self._locks.soon()

    def _members_changed(self, _: object, command: Command) -> None:
        """Renews the locks before a member that has come asks for them."""
        if command.ext.get("consumerGroup") == self._group:
            self._locks.soon()

    def _may_consume(self, state: ProcessQueue) -> bool:
        return not self._locked or state.locked(self.session.clock.monotonic())

    # what brokers ask

    def states(self) -> Mapping[QueueRef, ProcessQueue]:
        """Returns the state of every queue held."""
        return {queue: held.state for queue, held in self._held.items()}

    def committed(self, queue: QueueRef) -> int | None:
        """Returns how far a queue is consumed, as known here."""
        return self._offsets.current(queue) if self._offsets is not None else None

    def move(self, queue: QueueRef, offset: int) -> None:
        """Goes on at another offset of a queue that is held, once its call has ended if it is ordered."""
        held = self._held.get(queue)
        if held is not None:
            self._move(held, offset)

    async def try_now(self, message: ReceivedMessage) -> Action:
        """Shows a message to the listener, outside of all queues; returns what it answered."""
        return (await self._caller.call([message])).action

    # offsets

    async def _persist_forever(self) -> None:
        while True:
            await asyncio.sleep(self.config.persist_interval_ms / 1000)
            await self._persist(list(self._held))

    async def _persist(self, queues: Iterable[QueueRef]) -> None:
        if self._offsets is None:
            return
        try:
            await self._offsets.persist(queues)
        except (TandemError, OSError) as error:
            log.warning("group %s: offsets are not written this time: %s", self._group, error)
