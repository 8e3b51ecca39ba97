"""The fixtures, in a pytest of their own as a user would run it."""

import subprocess
import sys
from pathlib import Path

CONFTEST = """
import pytest

pytest_plugins = ["tandemq.testing.pytest_plugin"]  # as if TandemQ were installed; harmless if it is


@pytest.fixture(scope="session")
def tandemq_properties():
    return {"brokerName": "chosen"}
"""
TESTS = """
import pytest

from tandemq.client import Message, Producer, sync


@pytest.mark.parametrize("number", [1, 2])
def test_a_plain_program(tandemq_broker, tandemq_topic, number):
    with sync.Producer("shop", namesrv=tandemq_broker.namesrv) as producer:
        assert producer.send(Message(topic=tandemq_topic, body=b"paid")).queue.broker_name == "chosen"
    assert [message.body for message in tandemq_broker.messages(tandemq_topic)] == [b"paid"]


def test_a_program_with_a_loop(tandemq_broker, tandemq_topic):
    import asyncio

    async def story():
        async with Producer("shop", namesrv=tandemq_broker.namesrv) as producer:
            await producer.send(Message(topic=tandemq_topic, body=b"paid"))

    asyncio.run(story())
    assert len(tandemq_broker.messages(tandemq_topic)) == 1
"""


def test_a_user_s_tests_get_one_broker_and_topics_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_shop.py").write_text(TESTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


def test_whoever_does_not_use_the_fixtures_imports_no_broker() -> None:
    code = "import sys, tandemq.testing.pytest_plugin; sys.exit('tandemq.broker' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
