"""Where a consumer keeps how far it has come."""

import asyncio
import json
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.client.fake_cluster import on_loop, turns

from tandemq.client.offsets import LocalOffsets, RemoteOffsets
from tandemq.errors import ClientError, RequestTimeout
from tandemq.model.topic import QueueRef

ONE, TWO = QueueRef("T", "a", 0), QueueRef("T", "a", 1)


class Broker:
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.api: Any = self
        self.stored: dict[QueueRef, int] = {}
        self.written: list[tuple[QueueRef, int]] = []
        self.gate: asyncio.Event | None = None
        self.error: Exception | None = None

    async def ask_reader(self, broker_name: str, topic: str, ask: Callable[[str], Awaitable[Any]]) -> Any:
        return await ask("a:1")

    async def query_offset(self, address: str, group: str, queue: QueueRef, *, zero_if_young: bool) -> int | None:
        return self.stored.get(queue, 0 if zero_if_young else None)

    async def update_offset(self, address: str, group: str, queue: QueueRef, offset: int) -> None:
        self.written.append((queue, offset))
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        self.stored[queue] = offset


@on_loop
async def test_values_grow_unless_somebody_seeks() -> None:
    offsets = RemoteOffsets(Broker(), "g")
    offsets.update(ONE, 5)
    offsets.update(ONE, 3)
    assert offsets.current(ONE) == 5
    offsets.update(ONE, 3, may_go_back=True)
    assert offsets.current(ONE) == 3
    offsets.forget(ONE)
    assert offsets.current(ONE) is None


@on_loop
async def test_only_what_changed_is_written() -> None:
    broker = Broker()
    offsets = RemoteOffsets(broker, "g")
    offsets.update(ONE, 5)
    offsets.adopt(TWO, 7)
    await offsets.persist([ONE, TWO])
    await offsets.persist([ONE, TWO])
    assert broker.written == [(ONE, 5)]
    assert await offsets.read(ONE) == 5
    assert await offsets.read(TWO, zero_if_young=False) is None


@on_loop
async def test_what_could_not_be_written_is_written_the_next_time() -> None:
    broker = Broker()
    offsets = RemoteOffsets(broker, "g")
    offsets.update(ONE, 5)
    offsets.update(TWO, 6)
    broker.error = RequestTimeout("a:1")
    with pytest.raises(RequestTimeout):
        await offsets.persist([ONE, TWO])
    broker.error = None
    await offsets.persist([ONE, TWO])
    assert broker.stored == {ONE: 5, TWO: 6}


@on_loop
async def test_a_newer_value_waits_for_the_write_under_way_although_that_was_cancelled() -> None:
    """Brokers handle requests in several threads: the older of two may come last."""
    broker = Broker()
    broker.gate = asyncio.Event()
    offsets = RemoteOffsets(broker, "g")
    offsets.update(ONE, 5)
    first = asyncio.get_running_loop().create_task(offsets.persist([ONE]))
    await turns()
    first.cancel()
    offsets.update(ONE, 9)
    second = asyncio.get_running_loop().create_task(offsets.persist([ONE]))
    await turns()
    assert broker.written == [(ONE, 5)]
    broker.gate.set()
    await second
    assert broker.written == [(ONE, 5), (ONE, 9)]
    assert broker.stored == {ONE: 9}


@on_loop
async def test_broadcast_offsets_live_in_the_file_of_the_java_client(tmp_path: Path) -> None:
    offsets = LocalOffsets(tmp_path, "1.2.3.4@one", "g")
    offsets.update(ONE, 5)
    await offsets.persist([ONE])
    offsets.forget(ONE)
    offsets.close()
    path = tmp_path / "1.2.3.4@one" / "g" / "offsets.json"
    assert '"offsetTable":{{' in path.read_text()
    again = LocalOffsets(tmp_path, "1.2.3.4@one", "g")
    assert await again.read(ONE) == 5
    assert again.current(TWO) is None
    again.close()


@on_loop
async def test_one_consumer_writes_a_file(tmp_path: Path) -> None:
    first = LocalOffsets(tmp_path, "me", "g")
    with pytest.raises(ClientError, match="instanceName"):
        LocalOffsets(tmp_path, "me", "g")
    LocalOffsets(tmp_path, "me", "other").close()
    first.close()


@on_loop
async def test_a_disk_that_refuses_once_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offsets = LocalOffsets(tmp_path, "me", "g")
    offsets.update(ONE, 5)
    save = LocalOffsets._save

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(LocalOffsets, "_save", full)
    with pytest.raises(OSError, match="No space"):
        await offsets.persist([ONE])
    monkeypatch.setattr(LocalOffsets, "_save", save)
    await offsets.persist([ONE])
    offsets.close()
    assert LocalOffsets(tmp_path, "me", "g").current(ONE) == 5


@on_loop
async def test_a_directory_that_was_cleared_is_made_again(tmp_path: Path) -> None:
    offsets = LocalOffsets(tmp_path / "offsets", "10.0.0.1@i", "g")
    shutil.rmtree(tmp_path / "offsets")
    offsets.update(ONE, 5)
    await offsets.persist([ONE])
    offsets.close()
    assert LocalOffsets(tmp_path / "offsets", "10.0.0.1@i", "g").current(ONE) == 5


@on_loop
async def test_a_damaged_file_is_replaced_by_the_one_before(tmp_path: Path) -> None:
    offsets = LocalOffsets(tmp_path, "me", "g")
    for value in (5, 6):
        offsets.update(ONE, value)
        await offsets.persist([ONE])
    offsets.close()
    offsets.path.write_text(json.dumps({"offsetTable": 7})[:-3])
    assert LocalOffsets(tmp_path, "me", "g").current(ONE) == 5
