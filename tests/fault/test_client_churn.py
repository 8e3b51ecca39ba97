"""Members of a group come and go at random while messages flow: none is missed, whatever the order of events.

A failing run prints the seed that replays its decisions.
"""

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from tandemq.client import Action, Admin, ClientConfig, ConsumeFrom, Message, Producer, PushConsumer
from tandemq.model.topic import TopicConfig
from tandemq.testing.local_cluster import LocalCluster

pytestmark = pytest.mark.slow

MESSAGES = 1500
MEMBERS_MAX = 4


@pytest.mark.parametrize(("seed", "ordered"), [(1, False), (2, False), (3, True)])
def test_no_message_is_missed_while_members_come_and_go(tmp_path: Path, seed: int, ordered: bool) -> None:
    chance = random.Random(seed)
    seen: set[int] = set()
    complete = asyncio.Event()
    by_queue: dict[int, list[int]] = {}

    async def listener(messages: Any) -> Action:
        for _ in range(chance.randrange(10)):
            await asyncio.sleep(0)
        if not ordered and chance.random() < 0.01:
            return Action.LATER  # comes back through the retry topic
        for message in messages:
            number = int(message.body)
            if number not in seen:
                by_queue.setdefault(message.queue_id, []).append(number)
            seen.add(number)
        if len(seen) == MESSAGES:
            complete.set()
        return Action.SUCCESS

    async def story() -> None:
        # Level 3 of the retry delays is 10 s; here failed messages come back within a second.
        delays = " ".join(["1s"] * 18)
        async with LocalCluster(tmp_path) as cluster:
            await cluster.add_broker(properties={"messageDelayLevel": delays})
            config = ClientConfig(
                namesrv=cluster.namesrv_address,
                consume_from=ConsumeFrom.FIRST_OFFSET,
                rebalance_interval_ms=500,
                persist_interval_ms=200,
            )
            async with Admin(config=config) as admin:
                await admin.create_topic(TopicConfig(name="T", read_queues=4, write_queues=4))
            members: list[PushConsumer] = []

            async def churn() -> None:
                if members and (len(members) >= MEMBERS_MAX or chance.random() < 0.4):
                    await members.pop(chance.randrange(len(members))).close()
                    return
                member = PushConsumer("g", listener, config=config, ordered=ordered)
                member.subscribe("T")
                await member.start()
                members.append(member)

            async with Producer("p", config=config) as producer:
                for number in range(MESSAGES):
                    await producer.send(Message(topic="T", body=b"%d" % number), sharding_key=str(number % 7))
                    if number % 100 == 50:
                        await churn()
            if not members:
                await churn()
            await asyncio.wait([asyncio.create_task(complete.wait())], timeout=90)
            for member in members:
                await member.close()

    asyncio.run(story())
    missed = sorted(set(range(MESSAGES)) - seen)
    assert not missed, f"seed {seed}: {len(missed)} messages were never delivered, the first ones {missed[:5]}"
    if ordered:
        for queue_id, numbers in by_queue.items():
            assert numbers == sorted(numbers), f"seed {seed}: queue {queue_id} was delivered out of order"
