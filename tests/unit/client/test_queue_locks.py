"""Locks on the queues of an ordered consumer."""

import asyncio
from typing import Any

from tests.unit.client.fake_cluster import FakeCluster, ManualClock, on_loop

from tandemq.client.process_queue import LOCK_LIFE_S, ProcessQueue
from tandemq.client.queue_locks import QueueLocks
from tandemq.codec.codes import RequestCode
from tandemq.codec.command import Command
from tandemq.errors import RemotingError
from tandemq.model.topic import QueueRef
from tandemq.testing.waiting import until

ONE, TWO = QueueRef("T", "a", 0), QueueRef("T", "a", 1)


async def made(cluster: FakeCluster, **options: Any) -> QueueLocks:
    session = cluster.session(**options)
    await session.route("T")
    return QueueLocks(session, "g")


@on_loop
async def test_what_another_member_holds_is_refused() -> None:
    cluster = FakeCluster(queues=2)
    cluster.locks["g", TWO] = "somebody"
    locks = await made(cluster)
    answer = await locks.acquire([ONE, TWO])
    assert (answer.granted, answer.refused) == ({ONE}, {TWO})
    assert locks.asked == {ONE}
    await locks.release([ONE])
    assert (locks.asked, ("g", ONE) in cluster.locks) == (set(), False)


@on_loop
async def test_a_broker_that_does_not_answer_neither_grants_nor_refuses() -> None:
    cluster = FakeCluster(queues=2)
    locks = await made(cluster)
    cluster.dead.add("a:1")
    answer = await locks.acquire([ONE])
    assert (answer.granted, answer.refused) == (set(), set())
    assert locks.asked == {ONE}, "it may have granted the lock before its answer was lost"
    await locks.release([ONE])


@on_loop
async def test_renewals_keep_a_lock_alive_and_tell_who_lost_one() -> None:
    cluster, clock = FakeCluster(queues=2), ManualClock()
    locks = await made(cluster, clock=clock)
    states = {ONE: ProcessQueue(locked_at=clock.now), TWO: ProcessQueue(locked_at=clock.now)}
    cluster.locks["g", TWO] = "somebody"
    clock.now += LOCK_LIFE_S - 1
    lost: list[QueueRef] = []
    await locks.renew(states, lost.append, lost.append)
    clock.now += 2
    assert states[ONE].locked(clock.now)
    assert not states[TWO].locked(clock.now)
    assert lost == [TWO]


@on_loop
async def test_a_renewal_that_gets_no_answer_gives_nothing_up() -> None:
    cluster, clock = FakeCluster(), ManualClock()
    locks = await made(cluster, clock=clock)
    state = ProcessQueue(locked_at=clock.now)

    def away(*_: Any) -> Command:
        raise RemotingError("away")

    cluster.on[RequestCode.LOCK_BATCH_MQ] = away
    lost: list[QueueRef] = []
    await locks.renew({ONE: state}, lost.append, lost.append)
    assert (lost, state.locked(clock.now)) == ([], True)
    assert not state.locked(clock.now + LOCK_LIFE_S)


@on_loop
async def test_a_new_master_is_asked_for_the_lock() -> None:
    cluster = FakeCluster(brokers={"a": {0: "old:1"}})
    locks = await made(cluster)
    cluster.brokers["a"] = {0: "new:1"}
    cluster.dead.add("old:1")
    assert (await locks.acquire([ONE])).granted == {ONE}


@on_loop
async def test_a_lock_is_freed_at_a_new_master() -> None:
    cluster = FakeCluster(brokers={"a": {0: "old:1"}})
    locks = await made(cluster)
    assert (await locks.acquire([ONE])).granted == {ONE}
    cluster.brokers["a"] = {0: "new:1"}
    cluster.dead.add("old:1")
    await locks.release([ONE])
    assert cluster.locks == {}


@on_loop
async def test_a_lock_that_is_not_trusted_is_asked_for_until_it_is_back() -> None:
    cluster = FakeCluster()
    locks = await made(cluster)
    state = ProcessQueue(locked_at=None)
    refusals = iter([True, True])

    def at_last(address: str, command: Command) -> Command:
        if next(refusals, False):
            raise RemotingError("away")
        return cluster._lock(address, command)

    cluster.on[RequestCode.LOCK_BATCH_MQ] = at_last
    lost: list[QueueRef] = []
    regained: list[QueueRef] = []
    renewing = asyncio.create_task(locks.renew_forever(lambda: {ONE: state}, lost.append, regained.append))
    await until(lambda: regained, "the lock")
    assert (lost, regained, state.locked(locks._session.clock.monotonic())) == ([], [ONE], True)
    before = cluster.count(RequestCode.LOCK_BATCH_MQ)
    locks.soon()
    await until(lambda: cluster.count(RequestCode.LOCK_BATCH_MQ) > before, "a renewal that was asked for")
    assert regained == [ONE], "it was never lost"
    renewing.cancel()
