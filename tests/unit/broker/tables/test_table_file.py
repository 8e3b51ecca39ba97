"""A table on disk: at the cost of what changed, never half, never silently empty."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tandemq.broker.tables import table_file as module
from tandemq.broker.tables.groups import GroupTable
from tandemq.broker.tables.offsets import OffsetTable
from tandemq.broker.tables.table_file import TableFile, read_table
from tandemq.broker.tables.table_writer import TableWriter, replace_file
from tandemq.broker.tables.topics import TopicTable
from tandemq.errors import ConfigError, StoreError
from tandemq.model.topic import TopicConfig
from tandemq.sim.clock import ManualClock


class Node:
    """Topics and offsets with their files."""

    def __init__(self, folder: Path) -> None:
        clock = ManualClock()
        self.writer = TableWriter()
        self.topics = TopicTable(clock.wall_ms)
        self.offsets = OffsetTable(clock.wall_ms)
        self.topics_file = TableFile(folder / "topics.json", self.topics, self.writer, clock)
        self.offsets_file = TableFile(folder / "consumerOffset.json", self.offsets, self.writer, clock, depth=3)
        self.found = [file.load() for file in (self.topics_file, self.offsets_file)]

    async def put(self, *names: str, queues: int = 4) -> None:
        for name in names:
            self.topics.put(TopicConfig(name=name, read_queues=queues, write_queues=queues))
        self.topics_file.mark()
        await self.topics_file.saved()

    async def save_offsets(self) -> None:
        self.offsets_file.mark()
        await self.offsets_file.saved()


def run(story: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(story())  # type: ignore[arg-type]


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every table counts as large, so that changes go to the journal."""
    monkeypatch.setattr(module, "WHOLE_SIZE_MAX", 0)


def test_a_small_table_is_one_file_as_upstream_writes_it(tmp_path: Path) -> None:
    async def story() -> None:
        await Node(tmp_path).put("A", "B")

    run(story)
    assert [file.name for file in tmp_path.iterdir()] == ["topics.json"]
    saved = json.loads((tmp_path / "topics.json").read_text())
    assert saved["topicConfigTable"].keys() == {"A", "B"}
    assert saved["dataVersion"]["counter"] == 2


def test_a_large_table_writes_what_changed(tmp_path: Path, large: None) -> None:
    """The file stays as it is; the journal has the change, and both together are the table."""

    async def story() -> None:
        node = Node(tmp_path)
        await node.put(*(f"T{n}" for n in range(300)))
        before = (tmp_path / "topics.json").read_bytes()
        await node.put("new")
        node.topics.delete("T7")
        await node.put("T8", queues=16)
        assert (tmp_path / "topics.json").read_bytes() == before
        assert (tmp_path / "topics.journal").stat().st_size < 2000
        again = Node(tmp_path)
        assert again.found == [True, False]
        assert again.topics.all() == node.topics.all()
        assert again.topics.version == node.topics.version
        await again.put("newest")
        assert Node(tmp_path).topics.all().keys() == {*node.topics.all(), "newest"}

    run(story)


def test_offsets_are_saved_queue_by_queue(tmp_path: Path, large: None) -> None:
    async def story() -> None:
        node = Node(tmp_path)
        for group in range(100):
            for queue in range(8):
                node.offsets.commit(f"g{group}", "T", queue, 10)
        await node.save_offsets()
        size = (tmp_path / "consumerOffset.journal").stat().st_size
        node.offsets.commit("g5", "T", 3, 99)
        await node.save_offsets()
        assert (tmp_path / "consumerOffset.journal").stat().st_size - size < 200
        node.offsets.remove_group("g6")
        node.offsets.clone("g5", "g7", "T")
        await node.save_offsets()
        again = Node(tmp_path).offsets
        assert again.snapshot() == node.offsets.snapshot()
        assert again.query("g5", "T", 3) == again.query("g7", "T", 3) == 99
        assert again.topics_of("g6") == []

    run(story)


def test_a_long_journal_makes_room_for_a_new_file(tmp_path: Path, large: None) -> None:
    async def story() -> None:
        node = Node(tmp_path)
        await node.put("A")
        files = set()
        for n in range(40):
            await node.put("A", queues=n % 16)
            files.add((tmp_path / "topics.json").read_bytes())
        assert 2 < len(files) < 40
        assert Node(tmp_path).topics.all() == node.topics.all()

    run(story)


def test_a_closed_table_needs_no_journal(tmp_path: Path, large: None) -> None:
    """RocketMQ, which knows no journal, finds everything in the file."""

    async def story() -> None:
        node = Node(tmp_path)
        await node.put("A")
        await node.put("B")
        await node.topics_file.close()
        assert json.loads((tmp_path / "topics.json").read_text())["topicConfigTable"].keys() == {"A", "B"}
        (tmp_path / "topics.journal").unlink()
        assert Node(tmp_path).topics.all() == node.topics.all()

    run(story)


def test_a_file_that_somebody_else_wrote_counts(tmp_path: Path, large: None) -> None:
    async def story() -> None:
        node = Node(tmp_path)
        await node.put("A")
        await node.put("B")
        replace_file(tmp_path / "topics.json", [b'{"topicConfigTable":{"C":{"topicName":"C"}}}'])
        again = Node(tmp_path)
        assert again.topics.all().keys() == {"C"}
        await again.put("D")
        assert Node(tmp_path).topics.all().keys() == {"C", "D"}

    run(story)


def test_a_failed_write_is_made_up_for_by_the_next(
    tmp_path: Path, large: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        node = Node(tmp_path)
        await node.put("A")
        with monkeypatch.context() as patched:

            def full(path: Path, data: bytes, size: int) -> None:
                with open(path, "ab") as file:
                    file.write(data[:10])
                raise OSError(28, "No space left on device")

            patched.setattr(module, "_append", full)
            with pytest.raises(StoreError, match="was not saved"):
                await node.put("B")
        await node.put("C")
        assert Node(tmp_path).topics.all() == node.topics.all()

    run(story)


def test_changes_while_the_text_is_made_are_not_lost(tmp_path: Path, large: None) -> None:
    """Text is made in slices; what changes in between is in the journal afterwards."""

    async def story() -> None:
        node = Node(tmp_path)
        clock = node.topics_file._clock
        for n in range(1000):
            node.topics.put(TopicConfig(name=f"T{n}", read_queues=1, write_queues=1))
        node.topics_file.mark()
        for n in range(100):
            clock.advance(1.0)  # type: ignore[attr-defined]
            node.topics.delete(f"T{n}")
            node.topics.put(TopicConfig(name=f"N{n}", read_queues=1, write_queues=1))
            node.topics_file.mark()
            await asyncio.sleep(0)
        await node.topics_file.saved()
        assert Node(tmp_path).topics.all() == node.topics.all()

    run(story)


@pytest.mark.parametrize("damage", [b"", b"   ", b'{"a":', b"[]"])
def test_a_damaged_file_is_read_from_its_backup(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "topics.json"
    replace_file(path, [b'{"a":1}'])
    replace_file(path, [b'{"a":2}'])
    path.write_bytes(damage)
    found = read_table(path)
    assert found is not None
    assert found[0] == {"a": 1}


@pytest.mark.parametrize(("name", "text"), [("topics.json", b"garbage"), ("topics.json.bak", b"garbage")])
def test_nothing_readable_is_an_error_not_an_empty_table(tmp_path: Path, name: str, text: bytes) -> None:
    """Starting with no topics over a store full of them would be worse than not starting."""
    assert read_table(tmp_path / "topics.json") is None
    (tmp_path / name).write_bytes(text)
    with pytest.raises(ConfigError, match=name.replace(".", r"\.")):
        read_table(tmp_path / "topics.json")


def test_a_bad_entry_names_its_file(tmp_path: Path) -> None:
    (tmp_path / "consumerOffset.json").write_bytes(b'{"offsetTable":{"T@g":{"0":"x"}}}')
    with pytest.raises(ConfigError, match=r"consumerOffset\.json: offsetTable: T@g: .* whole numbers"):
        Node(tmp_path)


@pytest.mark.parametrize("count", ["70000", "-1", "99999999999999999999999999"])
def test_an_absurd_number_names_file_field_and_limit(tmp_path: Path, count: str) -> None:
    """It was taken over, and whatever goes through the queues of a topic never came to an end."""
    topics = f'{{"topicConfigTable":{{"T":{{"topicName":"T","readQueueNums":{count}}}}}}}'
    groups = f'{{"subscriptionGroupTable":{{"g":{{"groupName":"g","retryQueueNums":{count}}}}}}}'
    (tmp_path / "topics.json").write_text(topics)
    with pytest.raises(ConfigError, match=r"topics\.json: readQueueNums=.*(65536|at most)"):
        Node(tmp_path)
    path, clock = tmp_path / "subscriptionGroup.json", ManualClock()
    path.write_text(groups)
    with pytest.raises(ConfigError, match=r"subscriptionGroup\.json: retryQueueNums=.*(1024|at most)"):
        TableFile(path, GroupTable(clock.wall_ms), TableWriter(), clock).load()


def test_a_damaged_journal_is_told(tmp_path: Path, large: None) -> None:
    async def story() -> None:
        node = Node(tmp_path)
        await node.put(*(f"T{n}" for n in range(100)))
        for name in "BCD":
            await node.put(name)
        journal = tmp_path / "topics.journal"
        text = bytearray(journal.read_bytes())
        text[text.index(b"\n") + 15] ^= 1
        journal.write_bytes(text)
        with pytest.raises(ConfigError, match=r"topics\.journal: line 2 of 4"):
            Node(tmp_path)

    run(story)
