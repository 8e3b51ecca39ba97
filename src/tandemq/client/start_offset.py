"""Where a consumer begins a queue that it just got."""

from tandemq.client.config import ClientConfig, ConsumeFrom
from tandemq.client.offsets import OffsetStore
from tandemq.client.session import Session
from tandemq.model.topic import RETRY_PREFIX, QueueRef

HALF_AN_HOUR_MS = 30 * 60 * 1000


async def start_offset(session: Session, offsets: OffsetStore, queue: QueueRef, config: ClientConfig) -> int:
    """The stored offset, else what consumeFromWhere says. Retry topics begin at 0: what is in them was asked for.

    Raises when the stored offset can't be read: guessing would skip or repeat messages.
    """
    # For LAST_OFFSET the broker's "young queue" rule is part of what users of RocketMQ know: a new group misses nothing
    # of a new topic. A time was asked for on purpose.
    stored = await offsets.read(queue, zero_if_young=config.consume_from is not ConsumeFrom.TIMESTAMP)
    if stored is not None:
        offsets.update(queue, stored, may_go_back=True)
        return stored
    if queue.topic.startswith(RETRY_PREFIX) or config.consume_from is ConsumeFrom.FIRST_OFFSET:
        return 0
    address = await session.any_address(queue.broker_name, queue.topic)
    if config.consume_from is ConsumeFrom.TIMESTAMP:
        when = config.consume_timestamp_ms or session.clock.wall_ms() - HALF_AN_HOUR_MS
        return await session.api.offset_at(address, queue, when)
    return await session.api.max_offset(address, queue)
