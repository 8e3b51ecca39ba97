"""Where a consumer begins a queue that it has just won."""

from typing import Any

import pytest
from tests.unit.client.fake_cluster import FakeCluster, on_loop

from tandemq.client.config import ConsumeFrom
from tandemq.client.offsets import RemoteOffsets
from tandemq.client.start_offset import start_offset
from tandemq.codec.codes import RequestCode
from tandemq.codec.command import Command
from tandemq.errors import RemotingError
from tandemq.model.topic import QueueRef

QUEUE = QueueRef("T", "a", 0)


async def begin(
    cluster: FakeCluster, where: ConsumeFrom, queue: QueueRef = QUEUE, **options: Any
) -> tuple[int, RemoteOffsets]:
    session = cluster.session(consume_from=where, **options)
    await session.route("T")
    offsets = RemoteOffsets(session, "g")
    return await start_offset(session, offsets, queue, session.config), offsets


@on_loop
async def test_a_stored_offset_counts_and_is_not_written_again() -> None:
    cluster = FakeCluster()
    cluster.offsets["g", QUEUE] = 7
    start, offsets = await begin(cluster, ConsumeFrom.FIRST_OFFSET)
    await offsets.persist([QUEUE])
    assert start == offsets.current(QUEUE) == 7
    assert cluster.count(RequestCode.UPDATE_CONSUMER_OFFSET) == 0


@pytest.mark.parametrize(("where", "expected"), [(ConsumeFrom.FIRST_OFFSET, 0), (ConsumeFrom.LAST_OFFSET, 3)])
@on_loop
async def test_the_place_of_a_new_group_is_written_before_its_first_message(where: ConsumeFrom, expected: int) -> None:
    cluster = FakeCluster()
    cluster.store(b"1", b"2", b"3")
    start, offsets = await begin(cluster, where)
    await offsets.persist([QUEUE])
    assert start == expected
    assert cluster.offsets["g", QUEUE] == expected


@on_loop
async def test_a_time_is_asked_for_exactly() -> None:
    cluster = FakeCluster()
    cluster.on[RequestCode.SEARCH_OFFSET_BY_TIMESTAMP] = lambda _, c: Command(
        0, {"offset": "2" if c.ext["timestamp"] == "5000" else "1"}
    )
    start, _ = await begin(cluster, ConsumeFrom.TIMESTAMP, consume_timestamp_ms=5000)
    assert start == 2
    asked = next(c for c in cluster.commands if c.code == RequestCode.QUERY_CONSUMER_OFFSET)
    assert asked.ext["setZeroIfNotFound"] == "false"
    assert (await begin(cluster, ConsumeFrom.TIMESTAMP))[0] == 1


@on_loop
async def test_retry_topics_begin_at_the_beginning() -> None:
    retry = QueueRef("%RETRY%g", "a", 0)
    cluster = FakeCluster()
    cluster.store(b"1", queue=retry)
    assert (await begin(cluster, ConsumeFrom.LAST_OFFSET, retry))[0] == 0


@on_loop
async def test_an_offset_that_can_not_be_read_is_not_guessed() -> None:
    cluster = FakeCluster()

    def away(*_: Any) -> Command:
        raise RemotingError("away")

    cluster.on[RequestCode.QUERY_CONSUMER_OFFSET] = away
    with pytest.raises(RemotingError):
        await begin(cluster, ConsumeFrom.LAST_OFFSET)
