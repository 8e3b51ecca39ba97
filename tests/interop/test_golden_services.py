"""Our broker takes over stores that real brokers left: waiting delays are delivered, undecided halves asked about."""

import asyncio
import shutil
from pathlib import Path

import pytest
from tests.golden import unpack

from tandemq.broker.broker import Broker
from tandemq.broker.config import BrokerConfig
from tandemq.broker.record_slices import messages_of
from tandemq.clock import SystemClock
from tandemq.model.message import StoredMessage
from tandemq.model.topic import SCHEDULE_TOPIC, TRANS_GROUP, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from tandemq.remoting.config import RemotingConfig
from tandemq.store.config import StoreConfig
from tandemq.testing.broker_parts import FakeConnection
from tandemq.testing.waiting import until

SIZES = StoreConfig(
    commit_log_segment_size=262144,
    consume_queue_segment_size=4000,
    index_slots=1000,
    index_entries=2000,
    message_size_max=65536,
    file_reserved_hours=1_000_000,
)
LONGEST_DELAY = 18


@pytest.fixture(scope="module", params=["4.9.7", "5.3.3"])
def golden(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(request.param, tmp_path_factory.mktemp("golden"))


def _broker(root: Path) -> Broker:
    config = BrokerConfig(
        broker_name="broker-a",
        broker_ip1="127.0.0.1",
        store_path_root_dir=str(root),
        vip_port_enable=False,
        transaction_check_interval_ms=3_600_000,
    )
    return Broker(config, SIZES, RemotingConfig(listen_port=0, bind_address="127.0.0.1"), clock=SystemClock())


def _messages(broker: Broker, topic: str, queue_id: int) -> list[StoredMessage]:
    first, last = broker.store.reader.queue_range(topic, queue_id)
    found: list[StoredMessage] = []
    while first < last:
        got = broker.store.reader.get(topic, queue_id, first, 100, 1 << 20)
        found += messages_of(got.slices)
        first = got.next_offset
    return found


@pytest.mark.parametrize("which", ["master-clean", "master-killed"])
def test_waiting_delays_are_delivered(golden: Path, tmp_path: Path, which: str) -> None:
    """Two hours have passed since the capture: level 18 comes, what the real broker delivered does not come again."""

    async def story() -> None:
        root = Path(shutil.copytree(golden / which, tmp_path / "store"))
        broker = _broker(root)
        async with broker:
            waiting = _messages(broker, SCHEDULE_TOPIC, LONGEST_DELAY - 1)
            assert waiting
            done = _messages(broker, SCHEDULE_TOPIC, 0)
            await until(lambda: broker.services.delay.schedule.offset(LONGEST_DELAY) == len(waiting))
            await until(lambda: broker.store.dispatched == broker.store.appended)
            keys = [m.properties["UNIQ_KEY"] for m in _messages(broker, "delay", 0)]
            assert {m.properties["UNIQ_KEY"] for m in [*waiting, *done]} <= set(keys)
            if which == "master-clean":
                assert len(keys) == len(set(keys))

    asyncio.run(story())


@pytest.mark.parametrize("which", ["master-clean", "master-killed"])
def test_undecided_halves_are_asked_about_and_decided_ones_settled(golden: Path, tmp_path: Path, which: str) -> None:
    """Four of the twelve halves were never decided; both forms of op record settle the others."""

    async def story() -> None:
        root = Path(shutil.copytree(golden / which, tmp_path / "store"))
        broker = _broker(root)
        async with broker:
            halves = _messages(broker, TRANS_HALF_TOPIC, 0)
            producer = FakeConnection()
            for group in {half.properties["PGROUP"] for half in halves}:
                broker.members.register_producer(group, producer, "golden", "JAVA", 407, 0.0)  # type: ignore[arg-type]
            await broker.services.transactions.check()
            broker.store.flush_once()
            broker.services.transactions.save_progress()
            asked = {command.ext["transactionId"] for command in producer.sent if command.code == 39}
            assert len(asked) == 4
            committed = {m.properties["UNIQ_KEY"] for q in range(8) for m in _messages(broker, "tx", q)}
            assert not asked & committed
            assert broker.offsets.query(TRANS_GROUP, TRANS_HALF_TOPIC, 0) >= len(halves)
            op_count = broker.store.reader.queue_range(TRANS_OP_HALF_TOPIC, 0)[1]
            assert broker.offsets.query(TRANS_GROUP, TRANS_OP_HALF_TOPIC, 0) == op_count

    asyncio.run(story())
