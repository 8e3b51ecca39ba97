"""A small table's file is written whole."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tandemq.broker.services.delay_schedule import DelaySchedule
from tandemq.broker.tables.snapshots import SnapshotFile
from tandemq.broker.tables.table_writer import TableWriter
from tandemq.errors import ConfigError


def test_changes_during_a_write_are_in_the_next_one(tmp_path: Path) -> None:
    async def story(writer: TableWriter | None) -> None:
        state = {"n": 0}
        taken: list[int] = []

        def take() -> dict[str, int]:
            taken.append(state["n"])
            return dict(state)

        file = SnapshotFile(tmp_path / "t.json", take, writer)
        for _ in range(100):
            state["n"] += 1
            file.mark()
        await file.saved()
        assert file.load() == {"n": 100}
        assert taken == [100]
        state["n"] = 101
        file.mark()
        await file.saved()
        assert file.load() == {"n": 101}

    asyncio.run(story(None))
    asyncio.run(story(TableWriter()))


def test_a_new_table_has_no_file(tmp_path: Path) -> None:
    assert SnapshotFile(tmp_path / "t.json", dict).load() is None


def test_unquoted_keys_of_upstream_are_read(tmp_path: Path) -> None:
    path = tmp_path / "delayOffset.json"
    path.write_bytes(b'{\n\t"offsetTable":{3:1,4:2\n\t}\n}')
    assert SnapshotFile(path, dict).load() == {"offsetTable": {3: 1, 4: 2}}


def test_a_picture_that_may_be_read_beside_the_loop_is_written_there(tmp_path: Path) -> None:
    async def story(writer: TableWriter | None) -> None:
        state, threads = {"n": 1}, list[str]()

        def take() -> Callable[[], dict[str, int]]:
            copied = dict(state)

            def picture() -> dict[str, int]:
                threads.append(threading.current_thread().name)
                return copied

            return picture

        file = SnapshotFile(tmp_path / "t.json", take, writer)
        file.mark()
        await file.saved()
        assert file.load() == {"n": 1}
        assert "MainThread" not in threads

    asyncio.run(story(None))
    asyncio.run(story(TableWriter()))


@pytest.mark.parametrize(
    "text", ['{"offsetTable":{"3":"x"}}', '{"offsetTable":{"3":99999999999999999999}}', '{"offsetTable":7}']
)
def test_a_file_that_means_nothing_is_an_error_that_names_it(tmp_path: Path, text: str) -> None:
    """A bad number in delayOffset.json was called a mistake of ours."""
    path = tmp_path / "delayOffset.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"delayOffset\.json: (offset|offsetTable).*correct the file"):
        SnapshotFile(path, dict).load_into(DelaySchedule((1000,), lambda: 0).load)


def test_without_a_file_nothing_is_given(tmp_path: Path) -> None:
    SnapshotFile(tmp_path / "t.json", dict).load_into(lambda snapshot: pytest.fail("there is none"))
