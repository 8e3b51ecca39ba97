"""The programs in docs/client.md run as they stand there, against a fresh cluster, in the order of the page."""

import asyncio
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tandemq.testing.local_cluster import LocalCluster

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "client.md"


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    ready: list[str] = []
    started = threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        async with LocalCluster(tmp_path_factory.mktemp("docs")) as cluster:
            await cluster.add_broker()
            ready.append(cluster.namesrv_address)
            started.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert started.wait(30)
    yield ready[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join(30)
    loop.close()


def test_the_programs_of_the_page_run(namesrv: str) -> None:
    programs = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(programs) >= 5
    for program in programs:
        text = program.replace("127.0.0.1:9876", namesrv)
        done = subprocess.run([sys.executable, "-W", "error", "-c", text], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{program}\n{done.stdout}\n{done.stderr}"
