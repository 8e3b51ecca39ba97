"""config/*.json: whole or not at all."""

import asyncio
from pathlib import Path

import pytest

from tandemq.broker.snapshots import SnapshotFile, read_snapshot, write_snapshot
from tandemq.errors import ConfigError


def test_the_old_file_becomes_the_backup(tmp_path: Path) -> None:
    path = tmp_path / "config" / "topics.json"
    write_snapshot(path, b'{"a":1}')
    write_snapshot(path, b'{"a":2}')
    assert read_snapshot(path) == {"a": 2}
    assert read_snapshot(path.with_name("topics.json.bak")) == {"a": 1}


@pytest.mark.parametrize("damage", [b"", b"   ", b'{"a":', b"[]"])
def test_a_damaged_file_is_read_from_its_backup(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "topics.json"
    write_snapshot(path, b'{"a":1}')
    write_snapshot(path, b'{"a":2}')
    path.write_bytes(damage)
    assert read_snapshot(path) == {"a": 1}


def test_a_crash_between_the_renames_leaves_the_backup(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    write_snapshot(path, b'{"a":1}')
    path.rename(tmp_path / "topics.json.bak")
    assert read_snapshot(path) == {"a": 1}


def test_nothing_readable_is_an_error_not_an_empty_table(tmp_path: Path) -> None:
    """Starting with no topics over a store full of them would be worse than not starting."""
    path = tmp_path / "topics.json"
    assert read_snapshot(path) is None
    path.write_bytes(b"garbage")
    with pytest.raises(ConfigError, match=r"topics\.json"):
        read_snapshot(path)


def test_unquoted_keys_of_upstream_are_read(tmp_path: Path) -> None:
    path = tmp_path / "delayOffset.json"
    path.write_bytes(b'{\n\t"offsetTable":{3:1,4:2\n\t}\n}')
    assert read_snapshot(path) == {"offsetTable": {3: 1, 4: 2}}


def test_changes_during_a_write_are_in_the_next_one(tmp_path: Path) -> None:
    async def story() -> None:
        state = {"n": 0}
        taken: list[int] = []

        def take() -> dict[str, int]:
            taken.append(state["n"])
            return dict(state)

        file = SnapshotFile(tmp_path / "t.json", take)
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

    asyncio.run(story())
