"""Real processes, the HA link through a proxy: cut, held one way, slowed, broken; producers are told the truth."""

import asyncio
import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tandemq.store.config import StoreConfig
from tandemq.store.message_store import MessageStore
from tandemq.testing.pair import LoadResult, RealPair
from tandemq.testing.proxy import FaultProxy
from tandemq.testing.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SEND_OK, SLAVE_NOT_AVAILABLE, FLUSH_SLAVE_TIMEOUT = 0, 11, 12


def test_a_link_that_is_cut_held_slowed_and_healed_loses_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            RealPair(tmp_path, properties={"slaveTimeout": "500"}) as pair,
            FaultProxy(pair.master.ha_address) as link,
        ):
            pair.master.start()
            pair.slave.start(haMasterAddress=link.address)
            await pair.in_sync()
            load = pair.load(senders=4)
            count = load.result.statuses.get

            async def told(code: int) -> None:
                before = count(code, 0)
                await until(lambda: count(code, 0) > before + 5)

            await told(SEND_OK)
            link.hold()  # a cut cable: nobody notices, sends run into their deadline, then the silence is noticed
            await told(FLUSH_SLAVE_TIMEOUT)
            await told(SLAVE_NOT_AVAILABLE)
            link.heal()
            await told(SEND_OK)
            link.hold(to=True, back=False)  # the master is heard, but hears nothing
            await told(FLUSH_SLAVE_TIMEOUT)
            link.heal()
            await told(SEND_OK)
            link.refusing = True
            link.reset()
            await told(SLAVE_NOT_AVAILABLE)
            link.heal()
            await told(SEND_OK)
            link.delay = 0.02
            await told(SEND_OK)
            link.heal()
            result = await load.stop()
            await pair.in_sync()
            await pair.check(result)

    asyncio.run(story())


def test_a_slave_with_a_full_disk_says_so_and_comes_back(tmp_path: Path) -> None:
    async def story(small: Path) -> None:
        async with RealPair(tmp_path) as pair:
            pair.slave.store = small / "store"
            pair.slave.properties["storePathRootDir"] = str(pair.slave.store)
            pair.slave.properties["diskMaxUsedSpaceRatio"] = "95"
            ballast = small / "ballast"
            pair.master.start()
            pair.slave.start()
            await pair.in_sync()
            load = pair.load(senders=2)
            await until(lambda: len(load.result.acknowledged) > 50)
            free = shutil.disk_usage(small).free
            ballast.write_bytes(bytes(max(0, free - 200_000)))

            async def is_full() -> bool:
                status = await pair.status(pair.master)
                return any("disk-full" in replica["reason"] for replica in status.get("replicas", ()))

            await until(is_full, "the master to hear that its slave's disk is full", seconds=60)
            before = load.result.statuses.get(SLAVE_NOT_AVAILABLE, 0)
            await until(lambda: load.result.statuses.get(SLAVE_NOT_AVAILABLE, 0) > before)
            ballast.unlink()
            result = await load.stop()
            await pair.in_sync(seconds=60)
            await pair.check(result)

    small = tmp_path / "small"
    with small_disk(small):
        asyncio.run(story(small))


@contextlib.contextmanager
def small_disk(path: Path) -> Iterator[None]:
    """A tmpfs of 24 MiB; needs root."""
    path.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(path)], capture_output=True).returncode:
        pytest.skip("a small tmpfs can't be mounted here: needs root")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], check=False)


def test_history_poured_into_an_empty_slave_is_the_masters_byte_for_byte(tmp_path: Path) -> None:
    """Frames so large that most of their bytes go from socket to file inside the kernel; killed on the way."""

    async def story() -> None:
        segment = 16 << 20
        async with RealPair(tmp_path, properties={"mappedFileSizeCommitLog": str(segment)}) as pair:
            store = MessageStore.open(pair.master.store, StoreConfig(commit_log_segment_size=segment))
            for number in range(600):
                store.append("H", 0, 0, 0, 1, bytes((127, 0, 0, 1, 0, 0, 9, 9)), 0, 0, os.urandom(100_000), b"")
                if number % 50 == 0:
                    store.dispatch()
            store.close()
            pair.master.start()
            pair.slave.start()
            while not (await pair.status(pair.slave)).get("end"):
                assert pair.slave.is_running, pair.slave.log.read_text()
            pair.slave.kill()
            pair.slave.start()
            await pair.in_sync()
            assert (await pair.status(pair.slave))["end"] > 3 * segment
            await pair.check(LoadResult())

    asyncio.run(story())
