"""The Python client's stories, the same list against our servers and against real RocketMQ brokers."""

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.interop.python_client import CLOCK, TARGETS, Cluster, Inbox, make_topic, running, unique

from tandemq.client import (
    SQL92,
    Action,
    Admin,
    Compression,
    ConsumeFrom,
    Message,
    MessageModel,
    Producer,
    PullConsumer,
    PushConsumer,
    QueueRef,
    ReceivedMessage,
    SendStatus,
    TransactionProducer,
    TransactionState,
    sync,
)
from tandemq.client.bulk import Ack, BatchSender, QueueReader
from tandemq.errors import ClientError, InvalidMessage, NoRoute, RequestTimeout, SendFailed
from tandemq.formats.batch import encode_batch
from tandemq.formats.record import parse_record, walk
from tandemq.model.topic import SubscriptionGroupConfig
from tandemq.testing.waiting import until


@pytest.fixture(scope="module", params=TARGETS)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(request.param, tmp_path_factory.mktemp(request.param)) as found:
        yield found


# sending


def test_a_sent_message_says_where_it_is(cluster: Cluster) -> None:
    async def story() -> None:
        topic = await make_topic(cluster)
        async with Producer(unique("p"), namesrv=cluster.namesrv) as producer:
            first = await producer.send(Message(topic=topic, body=b"one"), queue=QueueRef(topic, "broker-a", 2))
            second = await producer.send(Message(topic=topic, body=b"two"), queue=QueueRef(topic, "broker-a", 2))
        assert first.status is SendStatus.SEND_OK
        assert (first.queue.queue_id, first.queue_offset) == (2, 0)
        assert second.queue_offset == 1
        assert len(first.offset_message_id) == len(first.message_id) == 32

    asyncio.run(story())


def test_a_topic_is_created_by_the_first_send(cluster: Cluster) -> None:
    async def story() -> None:
        topic = unique("auto")
        async with Producer(unique("p"), namesrv=cluster.namesrv) as producer:
            assert (await producer.send(Message(topic=topic, body=b"x"))).ok

    asyncio.run(story())


def test_messages_go_round_the_queues(cluster: Cluster) -> None:
    async def story() -> None:
        topic = await make_topic(cluster)
        async with Producer(unique("p"), namesrv=cluster.namesrv) as producer:
            results = [await producer.send(Message(topic=topic, body=b"x")) for _ in range(8)]
        assert sorted(r.queue.queue_id for r in results) == [0, 0, 1, 1, 2, 2, 3, 3]

    asyncio.run(story())


def test_submitted_messages_are_all_stored_once(cluster: Cluster) -> None:
    async def story() -> None:
        topic = await make_topic(cluster)
        async with Producer(unique("p"), namesrv=cluster.namesrv) as producer:
            futures = [await producer.submit(Message(topic=topic, body=b"%d" % i)) for i in range(500)]
            results = await asyncio.gather(*futures)
        places: dict[int, list[int]] = {}
        for result in results:
            places.setdefault(result.queue.queue_id, []).append(result.queue_offset)
        # A busy broker may refuse one, which is then stored in another queue: no place is skipped or used twice.
        assert all(sorted(offsets) == list(range(len(offsets))) for offsets in places.values())
        assert sum(map(len, places.values())) == 500

    asyncio.run(story())


def test_a_oneway_message_arrives(cluster: Cluster) -> None:
    async def story() -> None:
        topic = await make_topic(cluster)
        async with Producer(unique("p"), namesrv=cluster.namesrv) as producer, Admin(namesrv=cluster.namesrv) as admin:
            await producer.send_oneway(Message(topic=topic, body=b"x"))

            async def stored() -> bool:
                return sum(high for _, high in (await admin.queue_ranges(topic)).values()) == 1

            await until(stored, "the one-way message in a queue")

    asyncio.run(story())


def test_a_batch_is_split_by_size_and_keeps_its_order(cluster: Cluster) -> None:
    async def story() -> None:
        topic = await make_topic(cluster, queues=1)
        inbox = Inbox()
        config = cluster.config(batch_size_max=4096, consume_from=ConsumeFrom.FIRST_OFFSET)
        async with Producer(unique("p"), config=config) as producer:
            sent = [Message(topic=topic, body=b"%04d" % i + bytes(500), keys=(f"k{i}",)) for i in range(30)]
            results = await producer.send_batch(sent)
        assert [r.queue_offset for r in results] == list(range(30))
        assert len({r.offset_message_id for r in results}) == 30
        consumer = PushConsumer(unique("g"), inbox, config=config, ordered=True)
        consumer.subscribe(topic)
        async with consumer:
            await until(lambda: len(inbox.messages) == 30, "30 messages of the batches")
        assert inbox.bodies == [m.body for m in sent]
        assert inbox.messages[7].keys == ("k7",)
        assert inbox.messages[7].message_id == results[7].message_id

    asyncio.run(story())


@pytest.mark.parametrize("method", [Compression.ZLIB, Compression.LZ4, Compression.ZSTD])
def test_large_bodies_travel_compressed(cluster: Cluster, method: Compression) -> None:
    async def story() -> None:
        topic = await make_topic(cluster, queues=1)
        body = bytes(range(256)) * 100
        config = cluster.config(compress_type=method, consume_from=ConsumeFrom.FIRST_OFFSET)
        async with Producer(unique("p"), config=config) as producer:
            await producer.send(Message(topic=topic, body=body))
        async with Admin(namesrv=cluster.namesrv) as admin:
            queue = QueueRef(topic, "broker-a", 0)

            async def stored() -> bool:
                return (await admin.queue_range(queue))[1] == 1

            await until(stored, "the message in its queue")
            found = await admin.message_at(queue, 0)
        assert found.body == body
        assert len(found.stored.body) < len(body) / 5

    asyncio.run(story())


def test_what_no_broker_takes_is_refused_before_it_is_sent(cluster: Cluster) -> None:
    async def story() -> None:
        async with Producer(unique("p"), config=cluster.config(message_size_max=1000)) as producer:
            for message, words in (
                (Message(topic="t", body=b""), "empty"),
                (Message(topic="t", body=bytes(1001)), "maxMessageSize"),
                (Message(topic="a/b", body=b"x"), "characters"),
                (Message(topic="t", body=b"x", properties={"k": "a\x01b"}), "separate"),
            ):
                with pytest.raises((InvalidMessage, ClientError), match=words):
                    await producer.send(message)

    asyncio.run(story())


def test_a_send_that_fails_lists_its_attempts(cluster: Cluster) -> None:
    async def story() -> None:
        topic = await make_topic(cluster, queues=1)
        async with Producer(unique("p"), namesrv=cluster.namesrv) as producer:
            with pytest.raises(SendFailed, match="broker-a") as failure:
                await producer.send(Message(topic=topic, body=b"x"), queue=QueueRef(topic, "broker-a", 99))
        assert len(failure.value.attempts) == 1
        assert failure.value.code in (1, 29)

    asyncio.run(story())


def test_delayed_messages_wait(cluster: Cluster) -> None:
    async def story() -> None:
        topic = await make_topic(cluster, queues=1)
        inbox = Inbox()
        consumer = PushConsumer(unique("g"), inbox, config=cluster.config(consume_from=ConsumeFrom.FIRST_OFFSET))
        consumer.subscribe(topic)
        async with consumer, Producer(unique("p"), namesrv=cluster.namesrv) as producer:
            await producer.send(Message(topic=topic, body=b"later", delay_level=1))
            await until(lambda: bool(inbox.messages), "the delayed message")
        message = inbox.messages[0]
        assert message.store_timestamp - message.born_timestamp >= 900

    asyncio.run(story())


# consuming


def test_tags_are_filtered(cluster: Cluster) -> None:
    async def story() -> None:
        topic = await make_topic(cluster)
        inbox = Inbox()
        consumer = PushConsumer(unique("g"), inbox, config=cluster.config(consume_from=ConsumeFrom.FIRST_OFFSET))
        consumer.subscribe(topic, "A || C")
        async with Producer(unique("p"), namesrv=cluster.namesrv) as producer:
            for tag in "ABCABC":
                await producer.send(Message(topic=topic, body=tag.encode(), tags=tag))
        async with consumer:
            await until(lambda: len(inbox.messages) == 4, "the four messages with tag A or C")
        assert sorted(inbox.bodies) == [b"A", b"A", b"C", b"C"]

    asyncio.run(story())


def test_sql_filters_look_at_properties(cluster: Cluster) -> None:
    async def story() -> None:
        topic = await make_topic(cluster)
        inbox = Inbox()
        consumer = PushConsumer(unique("g"), inbox, config=cluster.config(consume_from=ConsumeFrom.FIRST_OFFSET))
        consumer.subscribe(topic, "price > 5 AND kind = 'book'", SQL92)
        async with Producer(unique("p"), namesrv=cluster.namesrv) as producer:
            for price in range(10):
                for kind in ("book", "pen"):
                    message = Message(topic=topic, body=b"%d" % price, properties={"price": str(price), "kind": kind})
                    await producer.send(message)
        async with consumer:
            await until(lambda: len(inbox.messages) >= 4, "four messages")
        assert sorted(inbox.bodies) == [b"6", b"7", b"8", b"9"]

    asyncio.run(story())


def test_a_wrong_sql_filter_fails_at_start(cluster: Cluster) -> None:
    async def story() -> None:
        topic = await make_topic(cluster)
        consumer = PushConsumer(unique("g"), Inbox(), namesrv=cluster.namesrv)
        consumer.subscribe(topic, "price >", SQL92)
        with pytest.raises(Exception, match=r"(?i)code|sql|parse|compile"):
            await consumer.start()
        await consumer.close()

    asyncio.run(story())


def test_one_key_stays_in_order(cluster: Cluster) -> None:
    async def story() -> None:
        topic = await make_topic(cluster)
        seen: dict[str, list[int]] = {}

        def listener(messages: object) -> None:
            assert isinstance(messages, list)
            for message in messages:
                key, number = message.body.decode().split(":")
                seen.setdefault(key, []).append(int(number))

        config = cluster.config(consume_from=ConsumeFrom.FIRST_OFFSET)
        consumer = PushConsumer(unique("g"), listener, config=config, ordered=True)
        consumer.subscribe(topic)
        async with consumer, Producer(unique("p"), namesrv=cluster.namesrv) as producer:
            for number in range(20):
                for key in ("a", "b", "c"):
                    await producer.send(Message(topic=topic, body=f"{key}:{number}".encode()), sharding_key=key)
            await until(lambda: sum(map(len, seen.values())) >= 60, "60 ordered messages")
        assert seen == {key: list(range(20)) for key in ("a", "b", "c")}

    asyncio.run(story())


def test_an_ordered_queue_waits_for_its_failed_message(cluster: Cluster) -> None:
    async def story() -> None:
        topic = await make_topic(cluster, queues=1)
        fails = [2]

        def answer(message: ReceivedMessage) -> Action | None:
            if message.body == b"1" and fails[0]:
                fails[0] -= 1
                return Action.LATER
            return None

        inbox = Inbox(answer)
        config = cluster.config(consume_from=ConsumeFrom.FIRST_OFFSET, suspend_ms=50)
        consumer = PushConsumer(unique("g"), inbox, config=config, ordered=True)
        consumer.subscribe(topic)
        async with Producer(unique("p"), namesrv=cluster.namesrv) as producer:
            for number in range(3):
                await producer.send(Message(topic=topic, body=b"%d" % number))
        async with consumer:
            await until(lambda: len(inbox.messages) == 5, "three messages and two repetitions")
        assert inbox.bodies == [b"0", b"1", b"1", b"1", b"2"]

    asyncio.run(story())


def test_two_members_share_the_queues_and_one_takes_over(cluster: Cluster) -> None:
    async def story() -> None:
        topic = await make_topic(cluster)
        group = unique("g")
        boxes = [Inbox(), Inbox()]
        config = cluster.config(consume_from=ConsumeFrom.FIRST_OFFSET)
        members = [PushConsumer(group, box, config=config) for box in boxes]

        def share(member: PushConsumer) -> set[int]:
            return {queue.queue_id for queue in member.assignment if queue.topic == topic}

        for member in members:
            member.subscribe(topic)
            await member.start()
        await until(lambda: [len(share(m)) for m in members] == [2, 2], "two queues each")
        assert share(members[0]) | share(members[1]) == {0, 1, 2, 3}
        await members[0].close()
        await until(lambda: len(share(members[1])) == 4, "all queues with the member that stayed")
        async with Producer(unique("p"), namesrv=cluster.namesrv) as producer:
            for number in range(8):
                await producer.send(Message(topic=topic, body=b"%d" % number))
        await until(lambda: len(boxes[1].messages) == 8, "all messages with the member that stayed")
        await members[1].close()

    asyncio.run(story())


def test_broadcasting_gives_everybody_everything(cluster: Cluster, tmp_path: Path) -> None:
    async def story() -> None:
        topic = await make_topic(cluster)
        group = unique("g")
        boxes = [Inbox(), Inbox()]
        consumers = []
        for index, box in enumerate(boxes):
            config = cluster.config(
                instance_name=f"one-{index}", offset_dir=str(tmp_path), consume_from=ConsumeFrom.FIRST_OFFSET
            )
            consumer = PushConsumer(group, box, config=config, model=MessageModel.BROADCASTING)
            consumer.subscribe(topic)
            await consumer.start()
            consumers.append(consumer)
        async with Producer(unique("p"), namesrv=cluster.namesrv) as producer:
            for number in range(6):
                await producer.send(Message(topic=topic, body=b"%d" % number))
        await until(lambda: [len(box.messages) for box in boxes] == [6, 6], "six messages for each of two")
        for consumer in consumers:
            await consumer.close()
        # Its own file tells the consumer where it was.
        again = Inbox()
        config = cluster.config(instance_name="one-0", offset_dir=str(tmp_path))
        consumer = PushConsumer(group, again, config=config, model=MessageModel.BROADCASTING)
        consumer.subscribe(topic)
        async with consumer, Producer(unique("p"), namesrv=cluster.namesrv) as producer:
            await producer.send(Message(topic=topic, body=b"new"))
            await until(lambda: bool(again.messages), "the message sent after the restart")
        assert again.bodies == [b"new"]

    asyncio.run(story())


def test_a_failed_message_comes_back_and_then_goes_to_the_dead_letters(cluster: Cluster) -> None:
    async def story() -> None:
        topic = await make_topic(cluster)
        group = unique("g")
        async with Admin(namesrv=cluster.namesrv) as admin:
            await admin.create_group(SubscriptionGroupConfig(name=group, retry_max_times=1))
        inbox = Inbox(lambda _: Action.LATER)
        config = cluster.config(consume_from=ConsumeFrom.FIRST_OFFSET, reconsume_max=1)
        consumer = PushConsumer(group, inbox, config=config)
        consumer.subscribe(topic)
        async with consumer, Producer(unique("p"), namesrv=cluster.namesrv) as producer:
            sent = await producer.send(Message(topic=topic, body=b"bad", tags="T", keys=("k",)))
            await until(lambda: len(inbox.messages) == 2, "the second delivery", seconds=60)
            async with Admin(namesrv=cluster.namesrv) as admin:

                async def buried() -> bool:
                    try:
                        ranges = await admin.queue_ranges(f"%DLQ%{group}")
                    except NoRoute:
                        return False
                    return sum(high for _, high in ranges.values()) == 1

                await until(buried, "the message in the dead letter queue", seconds=60)
                letter = await admin.message_at(QueueRef(f"%DLQ%{group}", "broker-a", 0), 0)
        first, second = inbox.messages
        assert (first.reconsume_times, second.reconsume_times) == (0, 1)
        assert second.topic == topic
        assert second.message_id == sent.message_id
        assert (second.tags, second.keys) == ("T", ("k",))
        assert letter.body == b"bad"

    asyncio.run(story())


def test_a_group_goes_on_where_it_stopped(cluster: Cluster) -> None:
    async def story() -> None:
        topic = await make_topic(cluster)
        group = unique("g")
        config = cluster.config(consume_from=ConsumeFrom.FIRST_OFFSET)
        places: list[list[tuple[int, int, bytes]]] = []
        async with Producer(unique("p"), namesrv=cluster.namesrv) as producer:
            for part in (b"first", b"second"):
                inbox = Inbox()
                for _ in range(10):
                    await producer.send(Message(topic=topic, body=part))
                consumer = PushConsumer(group, inbox, config=config)
                consumer.subscribe(topic)
                async with consumer:
                    await until(lambda: len(inbox.messages) >= 10, "ten messages")  # noqa: B023
                places.append([(m.queue_id, m.queue_offset, m.body) for m in inbox.messages])
                assert set(inbox.bodies) == {part}, places

    asyncio.run(story())


def test_a_new_group_can_start_at_a_time(cluster: Cluster) -> None:
    async def story() -> None:
        topic = await make_topic(cluster, queues=1)
        queue = QueueRef(topic, "broker-a", 0)
        async with Producer(unique("p"), namesrv=cluster.namesrv) as producer, Admin(namesrv=cluster.namesrv) as admin:
            await producer.send(Message(topic=topic, body=b"old"))
            sent = CLOCK.wall_ms()
            await until(lambda: CLOCK.wall_ms() > sent + 300, "two store timestamps that clearly differ")
            # RocketMQ 4.9 gives the message nearest to a time, later ones the first after it: the same one here.
            middle = CLOCK.wall_ms()
            await producer.send(Message(topic=topic, body=b"new"))

            async def searchable() -> bool:
                return (await admin.queue_range(queue))[1] == 2 and await admin.offset_at(queue, middle) == 1

            await until(searchable, "the second message found by time")
            inbox = Inbox()
            group = unique("g")
            await admin.create_group(SubscriptionGroupConfig(name=group))
            if cluster.name != "rocketmq-4.9.7":  # it starts new groups of young queues at 0 whatever they ask
                pushed = Inbox()
                config = cluster.config(consume_from=ConsumeFrom.TIMESTAMP, consume_timestamp_ms=middle)
                by_time = PushConsumer(unique("g"), pushed, config=config)
                by_time.subscribe(topic)
                async with by_time:
                    await until(lambda: bool(pushed.messages), "the message after the time")
                assert pushed.bodies == [b"new"]
            consumer = PullConsumer(group, namesrv=cluster.namesrv)
            async with consumer:
                await consumer.assign([queue])
                assert await consumer.seek_to_time(queue, middle) == 1
                inbox.messages += await consumer.poll(10_000)
        assert inbox.bodies == [b"new"]

    asyncio.run(story())


# transactions and requests


def test_transactions_commit_roll_back_and_are_asked_again(cluster: Cluster) -> None:
    async def story() -> None:
        topic = await make_topic(cluster)
        inbox = Inbox()
        checked: list[bytes] = []

        def check(message: ReceivedMessage) -> TransactionState:
            checked.append(message.body)
            return TransactionState.ROLLBACK if message.body == b"rollback" else TransactionState.COMMIT

        outcomes = {
            b"commit": TransactionState.COMMIT,
            b"rollback": TransactionState.ROLLBACK,
            b"unknown": TransactionState.UNKNOWN,
        }
        consumer = PushConsumer(unique("g"), inbox, config=cluster.config(consume_from=ConsumeFrom.FIRST_OFFSET))
        consumer.subscribe(topic)
        producer = TransactionProducer(unique("p"), check, namesrv=cluster.namesrv)
        async with consumer, producer:
            for body in outcomes:
                result = await producer.send_in_transaction(
                    Message(topic=topic, body=body), lambda message: outcomes[message.body]
                )
                assert result.state is outcomes[body]
            # A broker that asks again before it has handled our first answer commits twice: at least once.
            await until(lambda: len(set(inbox.bodies)) == 2, "the committed and the checked message", seconds=90)
        assert set(inbox.bodies) == {b"commit", b"unknown"}
        assert b"unknown" in checked

    asyncio.run(story())


def test_a_request_gets_its_reply(cluster: Cluster) -> None:
    async def story() -> None:
        topic = await make_topic(cluster)
        async with (
            Producer(unique("p"), namesrv=cluster.namesrv) as asker,
            Producer(unique("p"), namesrv=cluster.namesrv) as answerer,
        ):

            async def listener(messages: object) -> None:
                assert isinstance(messages, list)
                for message in messages:
                    await answerer.reply(message, b"re: " + message.body)

            consumer = PushConsumer(unique("g"), listener, config=cluster.config(consume_from=ConsumeFrom.FIRST_OFFSET))
            consumer.subscribe(topic)
            async with consumer:
                reply = await asker.request(Message(topic=topic, body=b"ping"), timeout_ms=20_000)
        assert reply.body == b"re: ping"

    asyncio.run(story())


def test_a_request_that_nobody_answers_times_out(cluster: Cluster) -> None:
    async def story() -> None:
        topic = await make_topic(cluster)
        async with Producer(unique("p"), namesrv=cluster.namesrv) as asker:
            with pytest.raises(RequestTimeout, match="no reply"):
                await asker.request(Message(topic=topic, body=b"ping"), timeout_ms=300)

    asyncio.run(story())


# pulling


def test_assigned_queues_are_read_sought_and_committed(cluster: Cluster) -> None:
    async def story() -> None:
        topic = await make_topic(cluster, queues=2)
        group = unique("g")
        queue, other = (QueueRef(topic, "broker-a", i) for i in range(2))
        async with Producer(unique("p"), namesrv=cluster.namesrv) as producer:
            for number in range(10):
                await producer.send(Message(topic=topic, body=b"%d" % number), queue=queue)
        config = cluster.config(consume_from=ConsumeFrom.FIRST_OFFSET)
        async with PullConsumer(group, config=config, auto_commit=False) as consumer:
            assert await consumer.queues(topic) == (queue, other)
            await consumer.assign([queue, other])
            got: list[ReceivedMessage] = []
            while len(got) < 10:
                got += await consumer.poll(10_000, 4)
            assert [m.body for m in got] == [b"%d" % i for i in range(10)]
            assert await consumer.range(queue) == (0, 10)
            consumer.seek(queue, 7)
            assert [m.body for m in await consumer.poll(10_000)] == [b"7", b"8", b"9"]
            consumer.seek(queue, 3)
            consumer.pause([queue])
            assert await consumer.poll(100) == []
            consumer.resume([queue])
            assert (await consumer.poll(10_000, 1))[0].body == b"3"
            await consumer.commit()
            assert await consumer.committed(queue) == 4
        async with PullConsumer(group, config=config) as consumer:
            await consumer.assign([queue])
            assert (await consumer.poll(10_000, 1))[0].body == b"4"

    asyncio.run(story())


def test_subscribed_pull_consumers_share_the_queues(cluster: Cluster) -> None:
    async def story() -> None:
        topic = await make_topic(cluster)
        group = unique("g")
        config = cluster.config(consume_from=ConsumeFrom.FIRST_OFFSET)
        members = [PullConsumer(group, config=config) for _ in range(2)]
        for member in members:
            member.subscribe(topic)
            await member.start()
        await until(lambda: [len(m.assignment) for m in members] == [2, 2], "two queues each")
        async with Producer(unique("p"), namesrv=cluster.namesrv) as producer:
            for number in range(8):
                await producer.send(Message(topic=topic, body=b"%d" % number))
        got: list[bytes] = []
        while len(got) < 8:
            for member in members:
                got += [m.body for m in await member.poll(200)]
        assert sorted(got) == [b"%d" % i for i in range(8)]
        for member in members:
            await member.close()

    asyncio.run(story())


# administration


def test_topics_are_listed_described_and_deleted(cluster: Cluster) -> None:
    async def story() -> None:
        topic = await make_topic(cluster, queues=3)
        async with Producer(unique("p"), namesrv=cluster.namesrv) as producer:
            for _ in range(3):
                await producer.send(Message(topic=topic, body=b"x"))
        async with Admin(namesrv=cluster.namesrv) as admin:
            assert topic in await admin.topics()
            route = await admin.route(topic)
            assert [(d.broker_name, d.read_queues, d.write_queues) for d in route.queues] == [("broker-a", 3, 3)]

            async def counted() -> bool:
                return [status.count for status in await admin.topic_status(topic)] == [1, 1, 1]

            await until(counted, "one message in each queue")
            await admin.delete_topic(topic)

            async def gone() -> bool:
                return topic not in await admin.topics()

            await until(gone, "the topic's end")

    asyncio.run(story())


def test_lag_is_measured_and_offsets_are_reset(cluster: Cluster) -> None:
    async def story() -> None:
        topic = await make_topic(cluster, queues=2)
        group = unique("g")
        inbox = Inbox()
        config = cluster.config(consume_from=ConsumeFrom.FIRST_OFFSET, persist_interval_ms=100)
        begin = CLOCK.wall_ms() - 60_000
        async with Producer(unique("p"), namesrv=cluster.namesrv) as producer, Admin(namesrv=cluster.namesrv) as admin:
            consumer = PushConsumer(group, inbox, config=config)
            consumer.subscribe(topic)
            async with consumer:
                for _ in range(10):
                    await producer.send(Message(topic=topic, body=b"x"))
                await until(lambda: len(inbox.messages) >= 10, "ten messages")

                async def caught_up() -> bool:
                    progress = await admin.progress(group, topic)
                    offsets = sum(q.consumer_offset for q in progress.queues)
                    return progress.lag == 0 and offsets >= 10  # more if a busy real broker stored a retried send twice

                await until(caught_up, "no lag")
                assert [m.client_id for m in await admin.members(group)] == [consumer.session.client_id]
                assert group in await admin.groups()
                reset = await admin.reset_offsets(group, topic, begin)
                assert set(reset.values()) <= {0}
                await until(lambda: len(inbox.messages) >= 20, "everything a second time", seconds=60)
            await producer.send(Message(topic=topic, body=b"y"))

            async def behind() -> bool:
                return (await admin.progress(group, topic)).lag >= 1

            await until(behind, "lag of the stopped group")
            await admin.delete_group(group)
            assert group not in await admin.groups()

    asyncio.run(story())


def test_messages_are_found_by_id_key_and_place(cluster: Cluster) -> None:
    async def story() -> None:
        topic = await make_topic(cluster)
        key = unique("key")
        async with Producer(unique("p"), namesrv=cluster.namesrv) as producer, Admin(namesrv=cluster.namesrv) as admin:
            sent = await producer.send(Message(topic=topic, body=b"find me", keys=(key, "other")))

            async def indexed() -> bool:
                return len(await admin.messages_by_key(topic, key)) == 1

            await until(indexed, "the message in the index")
            by_place = await admin.message_at(sent.queue, sent.queue_offset)
            by_id = await admin.message_by_id(sent.offset_message_id)
            by_key = (await admin.messages_by_key(topic, key))[0]
            by_unique = await admin.message_by_id(sent.message_id, topic)
            with pytest.raises(ClientError, match="none of them"):
                await admin.message_at(sent.queue, 99)
        assert {m.body for m in (by_place, by_id, by_key, by_unique)} == {b"find me"}
        assert {m.message_id for m in (by_place, by_id, by_key, by_unique)} == {sent.message_id}

    asyncio.run(story())


def test_cluster_broker_and_configuration_are_shown(cluster: Cluster) -> None:
    async def story() -> None:
        async with Admin(namesrv=cluster.namesrv) as admin:
            view = await admin.cluster()
            assert view.groups["broker-a"].master == cluster.master
            facts = (await admin.broker(cluster.master)).facts
            assert int(facts["commitLogMaxOffset"]) >= 0
            config = await admin.broker_config(cluster.master)
            assert config["brokerName"] == "broker-a"
            await admin.update_broker_config(cluster.master, {"fileReservedTime": "71"})
            assert (await admin.broker_config(cluster.master))["fileReservedTime"] == "71"

    asyncio.run(story())


# bulk, sync facade, name servers


def test_bulk_reads_exactly_what_bulk_wrote(cluster: Cluster) -> None:
    topic = asyncio.run(make_topic(cluster, queues=1))
    bodies = [b"%05d" % i + bytes(1000) for i in range(2000)]
    acks: list[Ack] = []
    with BatchSender(cluster.master) as sender:
        for start in range(0, len(bodies), 100):
            batch = encode_batch((0, body, b"") for body in bodies[start : start + 100])
            acks += sender.send(topic, 0, batch, tag=start)
        acks += sender.flush()
    # RocketMQ handles pipelined requests in a pool of threads: their order is its own, and the acks tell it.
    assert sorted(ack.queue_offset for ack in acks) == list(range(0, 2000, 100))
    order = [int(str(ack.tag)) for ack in sorted(acks, key=lambda ack: ack.queue_offset)]
    bodies = [body for start in order for body in bodies[start : start + 100]]
    with QueueReader(cluster.master) as reader:
        deadline = CLOCK.monotonic() + 20
        while reader.range(topic, 0) != (0, 2000):
            assert CLOCK.monotonic() < deadline, "the queue never had all messages"
        got = []
        for chunk, next_offset in reader.read(topic, 0, 5, 1990):
            got += [parse_record(chunk, position).body for position, _, _ in walk(chunk, 0, len(chunk))]
            assert next_offset == 5 + len(got)
        with pytest.raises(ClientError, match=r"2000|beyond|no message"):
            list(reader.read(topic, 0, 1999, 2005))
    assert got == bodies[5:1990]


def test_the_same_without_an_event_loop(cluster: Cluster) -> None:
    topic = asyncio.run(make_topic(cluster))
    with sync.Producer(unique("p"), namesrv=cluster.namesrv) as producer:
        results = [producer.send(Message(topic=topic, body=b"%d" % i)) for i in range(4)]
        assert producer.submit(Message(topic=topic, body=b"4")).result().ok
        assert len(producer.send_batch([Message(topic=topic, body=b"5"), Message(topic=topic, body=b"6")])) == 2
    assert all(r.ok for r in results)
    got: list[bytes] = []
    config = cluster.config(consume_from=ConsumeFrom.FIRST_OFFSET)
    with sync.PullConsumer(unique("g"), config=config) as consumer:
        consumer.assign(consumer.queues(topic))
        while len(got) < 7:
            got += [m.body for m in consumer.poll(10_000)]
    assert sorted(got) == [b"%d" % i for i in range(7)]
    with sync.Admin(namesrv=cluster.namesrv) as admin:
        assert sum(high for _, high in admin.queue_ranges(topic).values()) == 7


def test_a_dead_name_server_in_the_list_is_passed_over(cluster: Cluster) -> None:
    async def story() -> None:
        topic = await make_topic(cluster)
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            dead = f"127.0.0.1:{closed.getsockname()[1]}"
        for servers in (f"{dead};{cluster.namesrv}", f"{cluster.namesrv};{dead}"):
            async with Producer(unique("p"), namesrv=servers) as producer:
                assert (await producer.send(Message(topic=topic, body=b"x"))).ok
                assert producer.session.namesrv.current == cluster.namesrv

    asyncio.run(story())
