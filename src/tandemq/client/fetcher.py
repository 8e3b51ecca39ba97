"""The pull loop of one queue: asks, waits at the broker, hands over what came; used by push and pull consumers.

One pull is outstanding at a time. It goes to the member that the broker suggested last; when that one can't be reached,
to another one of its group, so that consumption goes on from a slave while the master is away. The loop pauses while
the queue's cache is full and ends when the queue is dropped. Cancelling it loses nothing: an answer is used or not at
all.
"""

import asyncio
import logging
from collections.abc import Callable

from tandemq.client.broker_api import PullResult
from tandemq.client.message import ReceivedMessage, decode_messages
from tandemq.client.offsets import OffsetStore
from tandemq.client.process_queue import ProcessQueue
from tandemq.client.routes import Target
from tandemq.client.session import Session
from tandemq.codec.codes import ResponseCode
from tandemq.codec.heartbeat import Subscription
from tandemq.errors import ClientError, CodecError, NoRoute, RemotingError, ReplyError
from tandemq.model.route import MASTER_ID
from tandemq.model.topic import QueueRef

log = logging.getLogger("tandemq.client")

IDLE_BOUNCE_S = 0.2
"""Pause after "try again at once" without progress: a 5.x slave gives that answer for ever when its master is gone."""
FLOW_CONTROL_PAUSE_S = 0.02
MOVED_PAUSE_S = 0.2
"""How often a broker that has not got our offset is asked again while fetched messages are still to be handled."""


class QueueFetcher:
    """Fetches one queue. `deliver` gets each non-empty batch; `moved` gets the offset to go on at when ours is gone.

    `subscription` is asked before each pull, so that a filter can change while the queue is held. `offsets` is told how
    far the queue is consumed when nothing is cached: also after a pull that found nothing, because a group that starts
    at the end of a queue must not lose its place before its first message.
    """

    def __init__(
        self,
        session: Session,
        group: str,
        queue: QueueRef,
        state: ProcessQueue,
        subscription: Callable[[], Subscription],
        *,
        offsets: OffsetStore | None,
        deliver: Callable[[list[ReceivedMessage]], None],
        moved: Callable[[int], None],
        ready: Callable[[], bool] = lambda: True,
        span_limited: bool = True,
    ) -> None:
        self._session = session
        self._group = group
        self._queue = queue
        self._state = state
        self._subscription = subscription
        self._tags: frozenset[str] = frozenset()
        """Of the pull that is outstanding."""
        self._asked: Target | None = None
        self._offsets = offsets
        self._deliver = deliver
        self._moved = moved
        self._ready = ready
        self._span_max = session.config.span_max if span_limited else None
        self._complained = ""
        """The last problem that was logged: it is logged once, not at every try."""
        self._wake = asyncio.Event()
        self._waits = False
        """Whether the loop waits for room, a lock or a resume."""

    def wake(self) -> None:
        """Lets the next pull go if it may: there may be room, a lock, or no pause any more.

        The loop is left alone otherwise, because this is called for every message that was handled.
        """
        if self._waits and self._may_pull():
            self._wake.set()

    async def run(self) -> None:
        state = self._state
        while not state.dropped:
            if not self._may_pull():
                await self._wait_for_wake()
                continue
            pause = 0.0
            try:
                pause = self._take(await self._pull())
            except (RemotingError, NoRoute) as error:
                pause = await self._unreachable(error)
            except ReplyError as error:
                pause = self._refused(error)
            except (CodecError, ClientError) as error:
                self._complain(f"pull of {self._queue} at {state.next_offset}: {error}")
                pause = self._session.config.pull_error_delay_ms / 1000
            except Exception:
                # A loop that ends in silence would leave its queue to nobody.
                log.exception("pull of %s at %d failed and is tried again", self._queue, state.next_offset)
                pause = self._session.config.pull_error_delay_ms / 1000
            if pause:
                await asyncio.sleep(pause)

    def _may_pull(self) -> bool:
        config = self._session.config
        state = self._state
        if state.paused or not self._ready():
            return False
        return state.has_room(config.queue_cache_max, config.queue_cache_bytes_max << 20, self._span_max)

    async def _wait_for_wake(self) -> None:
        self._wake.clear()
        self._waits = True
        try:
            async with asyncio.timeout(1.0):
                await self._wake.wait()
        except TimeoutError:
            pass  # time to check again: locks expire without an event
        finally:
            self._waits = False

    async def _pull(self) -> PullResult:
        target = await self._target()
        config = self._session.config
        self._asked = target
        subscription = self._subscription()
        self._tags = frozenset(subscription.tags)
        return await self._session.api.pull(
            target.address,
            self._group,
            self._queue,
            self._state.next_offset,
            count_max=config.pull_batch_size,
            subscription=subscription,
            suspend_ms=config.pull_suspend_ms,
            timeout_ms=config.pull_timeout_ms,
        )

    async def _target(self) -> Target:
        """Returns the best member that was not unreachable a moment ago; any if all were."""
        name = self._queue.broker_name
        targets = self._session.routes.readers(name, self._state.suggested_broker_id)
        if not targets:
            await self._session.route(self._queue.topic, refresh=True)
            targets = self._session.routes.readers(name, self._state.suggested_broker_id)
        if not targets:
            raise NoRoute(f"broker {name!r} is not in the route of {self._queue.topic!r}")
        return next((t for t in targets if self._session.reachable(t.address)), targets[0])

    def _take(self, result: PullResult) -> float:
        """Uses an answer; returns the pause before the next pull."""
        state = self._state
        if state.dropped:
            return 0.0
        self._complained = ""
        state.suggested_broker_id = result.suggested_broker_id
        if result.code == ResponseCode.PULL_OFFSET_MOVED:
            if state.count:
                # To go elsewhere is to drop the cache: what is in it would be skipped if the new place is behind it.
                return MOVED_PAUSE_S
            log.warning(
                "%s: offset %d is outside [%d, %d], going on at %d",
                self._queue,
                state.next_offset,
                result.min_offset,
                result.max_offset,
                result.next_offset,
            )
            self._moved(result.next_offset)
            return 0.0
        if not result.found:
            return self._nothing(result)
        messages = self._accepted(result)
        state.next_offset = result.next_offset
        if messages:
            state.add(messages)
            self._deliver(messages)
        else:
            self._consumed_up_to(result.next_offset)
        return 0.0

    def _nothing(self, result: PullResult) -> float:
        progress = result.next_offset > self._state.next_offset
        if progress:
            self._state.next_offset = result.next_offset
        self._consumed_up_to(self._state.next_offset)
        if result.code == ResponseCode.PULL_RETRY_IMMEDIATELY and not progress:
            return IDLE_BOUNCE_S
        return 0.0

    def _accepted(self, result: PullResult) -> list[ReceivedMessage]:
        """Returns the messages whose tag was asked for: the broker only compared hashes."""
        size_max = self._session.config.decompressed_size_max
        messages = decode_messages(result.records, self._queue.broker_name, body_size_max=size_max)
        if self._tags:
            return [message for message in messages if message.tags in self._tags]
        return list(messages)

    def _consumed_up_to(self, offset: int) -> None:
        """Stores how far the queue is consumed, if nothing before `offset` is cached."""
        if self._offsets is not None and not self._state.count:
            self._offsets.update(self._queue, offset)

    async def _unreachable(self, error: Exception) -> float:
        """Avoids a member that does not answer and asks for the route; returns the pause before the next pull."""
        target = self._asked
        if target is not None and isinstance(error, RemotingError):
            self._session.mark_unreachable(target.address)
        self._complain(f"pull of {self._queue} from {target.address if target else '?'} failed: {error}")
        try:
            await self._session.route(self._queue.topic, refresh=True)
        except (RemotingError, ReplyError, NoRoute) as also:
            log.debug("the route of %s could not be refreshed: %s", self._queue.topic, also)
        others = self._session.routes.readers(self._queue.broker_name, MASTER_ID)
        if any(self._session.reachable(other.address) for other in others):
            return 0.0
        return self._session.config.pull_error_delay_ms / 1000

    def _refused(self, error: ReplyError) -> float:
        if error.code == ResponseCode.FLOW_CONTROL:
            return FLOW_CONTROL_PAUSE_S
        if error.code in (ResponseCode.SUBSCRIPTION_NOT_EXIST, ResponseCode.SUBSCRIPTION_NOT_LATEST):
            self._session.heartbeat_soon()
        self._complain(f"pull of {self._queue} at {self._state.next_offset} was refused: {error}")
        return self._session.config.pull_error_delay_ms / 1000

    def _complain(self, text: str) -> None:
        if text != self._complained:
            self._complained = text
            log.warning("%s", text)
