"""Requests with any fields at all are answered or refused with a code; no name reaches the file system unchecked."""

import asyncio
from collections.abc import Awaitable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tandemq.broker.handlers.admin import AdminHandlers
from tandemq.broker.handlers.clients_admin import ClientAdminHandlers
from tandemq.broker.handlers.peers import HaFacts, PeerHandlers
from tandemq.broker.handlers.query import QueryHandlers
from tandemq.broker.handlers.reply import ReplyHandlers
from tandemq.broker.handlers.reset import ResetHandlers
from tandemq.broker.handlers.send_back import SendBackHandlers
from tandemq.broker.handlers.transactions import TransactionHandlers
from tandemq.broker.services.delay_schedule import DelaySchedule
from tandemq.broker.services.half_check import CheckLimits
from tandemq.broker.services.timers import TimerService
from tandemq.broker.services.transactions import TransactionService
from tandemq.broker.subscriptions import parse_subscription
from tandemq.codec.command import Command
from tandemq.errors import TandemError
from tandemq.formats.envelope import to_half
from tandemq.model.topic import SubscriptionGroupConfig, topic_name_problem
from tandemq.testing.broker_parts import ADDRESS, HOST, BrokerParts, FakeConnection

LIKELY = {
    "topic": ["T"], "group": ["g"], "consumerGroup": ["g"], "producerGroup": ["g"], "queueId": ["0", "1"],
    "offset": ["0"], "timestamp": ["-1", "0"], "isForce": ["true"], "index": ["0"], "count": ["5"],
    "statsName": ["TOPIC_PUT_NUMS"], "statsKey": ["T"], "readable": ["false"], "clientId": ["1"],
    "msgId": ["0A00000100002A9F0000000000000000"], "srcGroup": ["g"], "destGroup": ["copy"], "offline": ["true"],
    "topicList": ["T;"], "key": ["T"], "maxNum": ["9"], "beginTimestamp": ["0"], "endTimestamp": [str(2**62)],
    "delayLevel": ["0", "-1", "3"], "unitMode": ["true"], "maxReconsumeTimes": ["0", "16"],
    "commitOrRollback": ["8", "12"], "commitLogOffset": ["0"], "tranStateTableOffset": ["0"],
    "fromTransactionCheck": ["true"], "masterHaAddress": ["x:1"], "masterAddress": ["x:2"],
    "masterFlushOffset": ["1"], "isOrder": ["true"], "filterGroups": ["g"], "compareGroup": ["g"],
    "a": ["g"], "b": ["T", "DefaultCluster_REPLY_TOPIC"], "c": ["TBW102"], "d": ["4"], "e": ["0", "-1"], "f": ["0"],
    "g": ["0"], "h": ["0"], "i": ["REPLY_TO_CLIENT\x011\x02"], "j": ["0"], "k": ["false"], "l": ["1"], "m": ["false"],
}  # fmt: skip
"""Fields with values that get a request past its first checks."""
TEXTS = (
    "", "T", "g", "0", "1", "-1", "8", "12", "true", "false", str(2**63 - 1), str(-(2**63)), str(2**80), "1e5", "NaN",
    "../../etc/passwd", "/etc", "T/..", "%RETRY%g", "%DLQ%g", "RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX", "a@b",
    "T@g", "\x00", "\x01\x02", "ü" * 50, "x" * 300, "0A00000100002A9F0000000000000000", "TOPIC_PUT_NUMS",
    "REPLY_TO_CLIENT\x01c\x02",
)  # fmt: skip


def _table(parts: BrokerParts) -> dict[int, Any]:
    p = parts
    service = TransactionService(
        p.store, p.writer, p.offsets, p.members, p.clock,
        limits=lambda: CheckLimits(6000, 15, 10**12), interval_ms=lambda: 10**6, store_host=HOST, broker_name="b",
        ensure_topic=lambda topic: None,
    )  # fmt: skip
    families = (
        AdminHandlers(
            p.live, p.store, p.writer, p.topics, p.groups, p.offsets, p.members, p.stats, p.progress, p.clock,
            address=ADDRESS, runtime_info=dict, retain=lambda manual: p.store.retain(None, manual),
        ),
        ClientAdminHandlers(p.store, p.topics, p.groups, p.members, p.clock, broker_name="b"),
        ResetHandlers(p.live, p.store, p.topics, p.groups, p.offsets, p.members, p.clock, is_slave=lambda: False),
        SendBackHandlers(p.live, p.store, p.writer, p.topics, p.groups, p.stats, is_slave=lambda: False),
        TransactionHandlers(p.live, p.store, p.writer, service, p.stats, p.clock, is_slave=lambda: False),
        QueryHandlers(p.store),
        ReplyHandlers(p.live, p.writer, p.topics, p.members, p.clock, store_host=HOST, address=ADDRESS),
        PeerHandlers(
            DelaySchedule((1000,), p.clock.wall_ms), TimerService(p.store, p.writer, p.clock, store_host=HOST), p.clock,
            is_slave=lambda: False, address=ADDRESS, ha_facts=lambda: HaFacts(ha_address="", extra={}),
            ha_status=dict, master_announced=lambda ha, address: None,
        ),
    )  # fmt: skip
    table: dict[int, Any] = {}
    for family in families:
        table.update(family.handlers())
    return table


def _filled() -> BrokerParts:
    parts = BrokerParts()
    parts.topic("T")
    parts.groups.put(SubscriptionGroupConfig(name="g"))
    topic, queue_id, _, properties = to_half("T", 0, 4, {"PGROUP": "g"})
    parts.send(topic, b"half", queue_id, **properties)
    parts.send("T", b"plain", KEYS="T")
    connection: Any = FakeConnection()
    connection.answers = [Command(1)] * 100
    parts.members.register_consumer(
        "g", connection, "1", "JAVA", 407, 0.0, consume_type="CONSUME_PASSIVELY", message_model="CLUSTERING",
        consume_from_where="CONSUME_FROM_LAST_OFFSET", subscriptions=[parse_subscription("T", "A")],
    )  # fmt: skip
    return parts


odd = st.sampled_from(TEXTS) | st.text(max_size=20)
exts = st.fixed_dictionaries({}, optional={name: st.sampled_from(good) | odd for name, good in LIKELY.items()})


@settings(max_examples=60, deadline=None)
@given(exts, st.binary(max_size=64), st.integers(0, 600))
def test_every_request_is_answered_or_refused(ext: dict[str, str], body: bytes, version: int) -> None:
    """All codes with the same fields, one after the other, on one broker; its tables stay within the grammar."""

    async def story() -> None:
        parts = _filled()
        await parts.settle()
        connection: Any = FakeConnection()
        for code, handler in _table(parts).items():
            try:
                result = handler(connection, Command(code, dict(ext), body, version=version))
                if isinstance(result, Awaitable):
                    result = await result
            except (TandemError, ValueError):
                continue
            assert result is None or isinstance(result, bytes)
            await parts.settle()
        assert all(topic_name_problem(topic) is None for topic, _ in parts.store.reader.queues())
        assert all(topic_name_problem(topic) is None for topic in parts.topics.all())

    asyncio.run(story())
