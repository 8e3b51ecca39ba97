"""Files are replaced whole, by one thread, one after the other."""

import asyncio
import threading
from pathlib import Path

import pytest

from tandemq.broker.tables.table_writer import TableWriter, replace_file


def test_the_old_file_becomes_the_backup(tmp_path: Path) -> None:
    path = tmp_path / "config" / "topics.json"
    replace_file(path, [b'{"a"', b":1}"])
    replace_file(path, [b'{"a":2}'])
    assert path.read_bytes() == b'{"a":2}'
    assert path.with_name("topics.json.bak").read_bytes() == b'{"a":1}'
    assert sorted(file.name for file in path.parent.iterdir()) == ["topics.json", "topics.json.bak"]


def test_work_runs_in_one_other_thread_in_order() -> None:
    async def story() -> None:
        writer = TableWriter()
        order: list[int] = []
        threads = set()

        def work(number: int) -> int:
            order.append(number)
            threads.add(threading.get_ident())
            return number * 2

        assert await asyncio.gather(*(writer.run(work, number) for number in range(20))) == list(range(0, 40, 2))
        assert order == list(range(20))
        assert len(threads) == 1
        assert threading.get_ident() not in threads
        writer.close()

    asyncio.run(story())


def test_what_fails_is_raised_where_it_was_asked_for(tmp_path: Path) -> None:
    async def story() -> None:
        writer = TableWriter()
        (tmp_path / "file").write_bytes(b"")
        with pytest.raises(OSError, match="file"):
            await writer.run(replace_file, tmp_path / "file" / "x.json", [b"{}"])
        writer.close()

    asyncio.run(story())
