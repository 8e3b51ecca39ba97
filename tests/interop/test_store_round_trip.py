"""A store that we wrote, opened by a real RocketMQ broker: it recovers it, serves every message to the real Java
client, is killed, and we open the store again."""

import json
import os
import signal
import subprocess
import zlib
from pathlib import Path
from random import Random

import pytest
from tests.peers.programs import JAVA_VERSIONS, java
from tests.peers.servers import rocketmq
from tests.peers.tools import Missing

from tandemq.codec.bodies import topic_table_json
from tandemq.formats.batch import MessageBatch
from tandemq.formats.compression import compress, decompress
from tandemq.formats.envelope import (
    encode_op_body,
    from_half,
    from_schedule,
    op_properties,
    to_half,
    to_schedule,
)
from tandemq.model.message import TRANSACTION_PREPARED, encode_properties
from tandemq.model.topic import SCHEDULE_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC, DataVersion, TopicConfig
from tandemq.store.config import StoreConfig
from tandemq.store.config_files import TOPICS, ConfigFiles
from tandemq.store.disk import FileDisk
from tandemq.store.message_store import Appended, MessageStore
from tandemq.store.verify import verify

pytestmark = [pytest.mark.peer, pytest.mark.slow]

CONFIG = StoreConfig(
    commit_log_segment_size=262144,
    consume_queue_segment_size=4000,
    index_slots=1000,
    index_entries=2000,
    message_size_max=65536,
)
PROPERTIES = {
    "mappedFileSizeCommitLog": "262144",
    "mappedFileSizeConsumeQueue": "4000",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "2000",
    "maxMessageSize": "65536",
    "timerWheelEnable": "false",
    "transactionCheckInterval": "600000",
}
HOST = bytes((127, 0, 0, 1, 0, 0, 0xA1, 0xB2))
HOST_V6 = bytes.fromhex("fd000000000000000000000000000002") + bytes((0, 0, 0xA1, 0xB2))
LONG_TOPIC = "%RETRY%" + "g" * 125
"""Longer than 127 bytes: a v2 record, which RocketMQ 4.9 does not know."""


class Writer:
    """Appends one of everything and remembers what a consumer must see."""

    def __init__(self, store: MessageStore, seed: int) -> None:
        self.store = store
        self.random = Random(seed)
        self.expected: dict[str, list[str]] = {}
        self.count = 0

    def put(
        self, topic: str, queue_id: int, properties: dict[str, str], *, sys_flag: int = 0, prepared: int = 0,
        body: bytes | None = None, stored: bytes | None = None, host: bytes = HOST, served: bool = True,
    ) -> Appended:  # fmt: skip
        self.count += 1
        properties = {"KEYS": f"k{self.count}", "UNIQ_KEY": f"7F000001{self.count:024X}", **properties}
        body = self.random.randbytes(self.random.randrange(1, 900)) if body is None else body
        stored = body if stored is None else stored
        done = self.store.append(
            topic, queue_id, self.count, sys_flag, 1_700_000_000_000 + self.count, host, 0, prepared, stored,
            encode_properties(properties),
        )  # fmt: skip
        if served:
            line = f"{queue_id} {done.queue_offset} {properties['KEYS']} {len(body)} {zlib.crc32(body)} "
            self.expected.setdefault(topic, []).append(line + str(done.physical_offset))
        return done

    def batch(self) -> None:
        elements = []
        for _ in range(5):
            self.count += 1
            text = encode_properties({"KEYS": f"k{self.count}", "UNIQ_KEY": f"7F000001{self.count:024X}", "TAGS": "b"})
            elements.append((0, self.random.randbytes(100), text))
        done = self.store.append_batch("batch", 0, 0, 1_700_000_000_000, HOST, 0, MessageBatch(elements))
        for number, (at, (_, body, text)) in enumerate(zip(done.physical_offsets, elements, strict=True)):
            key = text.split(b"\x02")[0].split(b"\x01")[1].decode()
            line = f"0 {done.queue_offset + number} {key} {len(body)} {zlib.crc32(body)} {at}"
            self.expected.setdefault("batch", []).append(line)

    def everything(self, version: str) -> None:
        for number in range(300):
            self.put("plain", number % 4, {"TAGS": f"tag{number % 3}", "colour": "蓝色", "n": str(number)})
        self.put("hollow", 0, {}, body=b"", served=False)  # in the log; the Java driver can not print it
        self.put("plain", 1, {}, host=HOST_V6)
        for method in (0, *(() if version.startswith("4") else (0x100, 0x200, 0x300))):
            body = b"compress me " * 900
            packed, flags = compress(body, method)
            assert decompress(packed, flags) == body
            self.put("large", 0, {}, sys_flag=flags, body=body, stored=packed)
        for _ in range(20):
            self.put("large", 0, {}, body=self.random.randbytes(20_000))
            self.batch()
        for _ in range(5):
            wrapped = to_schedule("delay", 0, 0, {"DELAY": "18", "WAIT": "true"})
            self.put(wrapped.topic, wrapped.queue_id, wrapped.properties, served=False)
            due = from_schedule(0, wrapped.properties)
            self.put(due.topic, due.queue_id, due.properties)
        for decision in ("commit", "rollback", None) * 3:
            half = to_half("tx", 0, TRANSACTION_PREPARED, {"PGROUP": "GID_tx", "TRAN_MSG": "true"})
            done = self.put(half.topic, half.queue_id, half.properties, sys_flag=half.sys_flag, served=False)
            if decision == "commit":
                real = from_half(half.sys_flag, half.properties)
                self.put(
                    real.topic, real.queue_id, real.properties, sys_flag=real.sys_flag, prepared=done.physical_offset
                )
            if decision is not None:
                self.put(
                    TRANS_OP_HALF_TOPIC, 0, op_properties(), body=encode_op_body([done.queue_offset]), served=False
                )
        if not version.startswith("4"):
            for _ in range(10):
                self.put(LONG_TOPIC, 0, {})


def write_store(root: Path, version: str, *, crash: bool) -> Writer:
    disk = FileDisk()
    store = MessageStore.open(root, CONFIG, disk=disk, store_host=HOST)
    writer = Writer(store, 7)
    writer.everything(version)
    store.dispatch(1 << 30)
    queues = {"plain": 4}
    names = [*writer.expected, SCHEDULE_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC]
    topics = [
        TopicConfig(name=name, read_queues=queues.get(name, 1), write_queues=queues.get(name, 1))
        for name in names
        if name != SCHEDULE_TOPIC
    ]
    topics.append(TopicConfig(name=SCHEDULE_TOPIC, read_queues=18, write_queues=18))
    ConfigFiles(disk, root).save(TOPICS, topic_table_json(topics, DataVersion(0, 1_700_000_000_000, 1)))
    if crash:
        store.flush_once()
        store.abandon()
    else:
        store.close()
    return writer


@pytest.mark.parametrize("version", JAVA_VERSIONS)
@pytest.mark.parametrize("crash", [False, True], ids=["closed", "killed"])
def test_real_broker_serves_our_store_and_hands_it_back(tmp_path: Path, version: str, crash: bool) -> None:
    """Every message kind; after SIGKILL of the real broker our recovery finds every record and its views whole."""
    root = tmp_path / "1-broker" / "store"
    root.mkdir(parents=True)
    writer = write_store(root, version, crash=crash)
    try:
        with rocketmq(version, tmp_path, PROPERTIES) as servers:
            for topic, expected in writer.expected.items():
                found = pulled(version, servers.namesrv, topic, tmp_path / "list")
                if topic == "delay" and crash:
                    # 4.9 dispatches before it knows its delay levels: what is not due yet comes after a second.
                    found = [line for line in found if line in expected]
                assert found == sorted(expected), topic
            os.kill(servers.pids["broker"], signal.SIGKILL)
    except Missing as missing:
        pytest.skip(str(missing))
    store = MessageStore.open(root, CONFIG)
    assert store.recovered is not None
    assert not store.recovered.clean
    for topic, lines in writer.expected.items():
        for line in lines:
            queue_id, queue_offset, key, size, crc, physical_offset = line.split()
            message = store.reader.read(int(physical_offset))
            assert (message.topic, message.queue_id, message.queue_offset) == (topic, int(queue_id), int(queue_offset))
            body = decompress(message.body, message.sys_flag)
            assert (len(body), zlib.crc32(body)) == (int(size), int(crc))
            assert int(physical_offset) in [m.physical_offset for m in store.reader.query(topic, key, 9, 0, 1 << 62)]
    store.close()
    report = verify(FileDisk(), root, CONFIG)
    assert report.ok, report.problems


def pulled(version: str, namesrv: str, topic: str, listing: Path) -> list[str]:
    """What upstream's pull consumer reads, a line a message."""
    command, environment = java(version, "Pull")
    done = subprocess.run(
        [*command, namesrv, topic, f"list={listing}"], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads(done.stdout.strip().splitlines()[-1])
    lines = sorted(listing.read_text().splitlines())
    assert len(lines) == summary["messages"]
    return lines
