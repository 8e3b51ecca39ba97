"""Where a consumer begins a queue that it has just won."""

from tandemq.client.config import ClientConfig, ConsumeFrom
from tandemq.client.offsets import OffsetStore
from tandemq.client.session import Session
from tandemq.model.topic import RETRY_PREFIX, QueueRef

HALF_AN_HOUR_MS = 30 * 60 * 1000


async def start_offset(session: Session, offsets: OffsetStore, queue: QueueRef, config: ClientConfig) -> int:
    """Returns the stored offset, else what consumeFromWhere says; 0 for retry topics, whose messages were asked for.

    The place that a new group gets is remembered in `offsets` to be stored: it holds also when no message comes before
    the queue changes hands. Raises when the stored offset can't be read: guessing would skip or repeat messages.
    """
    # For LAST_OFFSET the broker's "young queue" rule is part of what users of RocketMQ know: a new group misses nothing
    # of a new topic. A time was asked for on purpose.
    stored = await offsets.read(queue, zero_if_young=config.consume_from is not ConsumeFrom.TIMESTAMP)
    if stored:
        offsets.adopt(queue, stored)
        return stored
    start = stored if stored is not None else await _first(session, queue, config)
    offsets.update(queue, start, may_go_back=True)
    return start


async def _first(session: Session, queue: QueueRef, config: ClientConfig) -> int:
    if queue.topic.startswith(RETRY_PREFIX) or config.consume_from is ConsumeFrom.FIRST_OFFSET:
        return 0

    async def ask(address: str) -> int:
        if config.consume_from is ConsumeFrom.TIMESTAMP:
            when = config.consume_timestamp_ms or session.clock.wall_ms() - HALF_AN_HOUR_MS
            return await session.api.offset_at(address, queue, when)
        return await session.api.max_offset(address, queue)

    return await session.ask_reader(queue.broker_name, queue.topic, ask)
