"""The broker for users' tests: it is a real one, so these tests use sockets on free ports."""

import threading
from pathlib import Path

import pytest

from tandemq.client import ConfigError, ConsumeFrom, Message, sync
from tandemq.testing.local_broker import LocalBroker


def test_a_broker_takes_messages_shows_them_and_goes() -> None:
    with LocalBroker(properties={"brokerName": "mine"}) as broker:
        topic = broker.create_topic(queues=2)
        with sync.Producer("shop", config=broker.config(send_timeout_ms=5000)) as producer:
            bodies = [b"%d" % number for number in range(40)]
            assert {producer.send(Message(topic=topic, body=body)).queue.broker_name for body in bodies} == {"mine"}
        assert sorted(message.body for message in broker.messages(topic)) == sorted(bodies)
        assert {message.queue_id for message in broker.messages(topic)} == {0, 1}
        assert broker.messages("never-heard-of") == []
        assert broker.config().consume_from is ConsumeFrom.FIRST_OFFSET
        with pytest.raises(RuntimeError, match="started already"):
            broker.start()
    assert "tandemq-local-broker" not in {thread.name for thread in threading.enumerate()}
    with sync.Admin(namesrv=broker.namesrv) as admin, pytest.raises(Exception, match="no name server answers"):
        admin.topics()


def test_a_broker_that_can_not_start_says_why() -> None:
    with pytest.raises(ConfigError, match="flushDiskType"), LocalBroker(properties={"flushDiskType": "NEVER"}):
        pass


def test_its_files_are_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with LocalBroker():
        assert list(tmp_path.iterdir())
    assert not list(tmp_path.iterdir())
