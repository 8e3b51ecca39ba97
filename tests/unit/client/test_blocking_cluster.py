"""Asking name servers and brokers without an event loop: order, patience, what is worth another try."""

from collections.abc import Callable
from typing import Any

import pytest

from tandemq.client import blocking_cluster
from tandemq.client.blocking_cluster import PAUSE_SECONDS_MAX, BlockingCluster, ClusterAccess
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command
from tandemq.errors import ConfigError, ConnectFailed, ConnectionLost, NoRoute, ReplyError, RequestTimeout
from tandemq.model.route import BrokerGroup
from tandemq.model.topic import QueueRef

Answer = Command | Exception


class Links:
    """Stands in for connections: `answers` gives what each (address, code) answers, in order; the last one stays."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answer: Callable[[str, int, dict[str, str]], Answer]) -> None:
        self.opened: list[str] = []
        self.closed: list[str] = []
        self.asked: list[tuple[str, int, dict[str, str]]] = []
        self._answer = answer
        monkeypatch.setattr(blocking_cluster, "BlockingLink", self._open)

    def _open(self, address: str, **_: Any) -> "Link":
        self.opened.append(address)
        return Link(self, address)

    def answer(self, address: str, code: int, fields: dict[str, str]) -> Command:
        self.asked.append((address, code, fields))
        found = self._answer(address, code, fields)
        if isinstance(found, Exception):
            raise found
        return found


class Link:
    def __init__(self, links: Links, address: str) -> None:
        self._links, self.address = links, address
        self._sent: list[tuple[int, dict[str, str]]] = []

    def call(self, code: int, fields: dict[str, str]) -> Command:
        return self.wait(self.send(code, fields))

    def send(self, code: int, fields: dict[str, str]) -> int:
        self._sent.append((code, fields))
        return len(self._sent)

    def wait(self, opaque: int) -> Command:
        return self._links.answer(self.address, *self._sent[opaque - 1])

    def close(self) -> None:
        self._links.closed.append(self.address)


def access(namesrv: str = "a:1", **given: Any) -> tuple[ClusterAccess, list[float]]:
    pauses: list[float] = []
    return ClusterAccess(namesrv=namesrv, retries=3, pause=pauses.append, report=lambda _: None, **given), pauses


TOPICS = Command(ResponseCode.SUCCESS, body=b'{"topicList":["b","a"]}')


def test_a_busy_name_server_is_asked_again_a_wrong_address_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    links = Links(monkeypatch, lambda *_: RequestTimeout("a:1: no answer within 10 s"))
    patient, pauses = access()
    with pytest.raises(NoRoute, match="none answers"):
        BlockingCluster(patient).topics()
    assert links.opened == ["a:1"] * 4
    assert pauses == [0.5, 1.0, 2.0]
    links = Links(monkeypatch, lambda *_: ConnectFailed("a:1: refused"))
    with pytest.raises(NoRoute, match="refused"):
        BlockingCluster(access()[0]).topics()
    assert links.opened == ["a:1"]


def test_the_next_name_server_answers_and_stays_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    links = Links(monkeypatch, lambda address, *_: TOPICS if address == "b:2" else ConnectFailed("a:1: refused"))
    cluster = BlockingCluster(access("a:1; b:2")[0])
    assert cluster.topics() == ["a", "b"]
    assert cluster.topics() == ["a", "b"]
    assert links.opened == ["a:1", "b:2"]


def test_a_connection_that_died_while_idle_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Answer] = [TOPICS, ConnectionLost("a:1: closed by the broker"), TOPICS]
    links = Links(monkeypatch, lambda *_: answers.pop(0))
    cluster = BlockingCluster(access()[0])
    assert cluster.topics() == cluster.topics()
    assert (links.opened, links.closed) == (["a:1", "a:1"], ["a:1"])
    cluster.close()
    assert links.closed == ["a:1", "a:1"]


def test_an_unknown_topic_is_no_error_and_a_refusal_is(monkeypatch: pytest.MonkeyPatch) -> None:
    Links(monkeypatch, lambda *_: Command(ResponseCode.TOPIC_NOT_EXIST, remark="no such topic"))
    assert BlockingCluster(access()[0]).route("t") is None
    Links(monkeypatch, lambda *_: Command(ResponseCode.NO_PERMISSION, remark="no"))
    with pytest.raises(ReplyError, match="no"):
        BlockingCluster(access()[0]).route("t")


def test_the_pause_before_a_try_doubles_up_to_a_limit() -> None:
    patient, pauses = access()
    for tries in (0, 1, 5, 500):
        patient.back_off(tries)
    assert pauses == [0.5, 1.0, PAUSE_SECONDS_MAX, PAUSE_SECONDS_MAX]


def test_offsets_are_committed_to_the_master_and_each_answer_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    group = BrokerGroup(cluster="c", name="b", addresses={1: "slave:1", 0: "master:1"})
    offsets = {QueueRef("t", "b", n): n * 10 for n in range(2)}
    links = Links(monkeypatch, lambda *_: Command(ResponseCode.SUCCESS))
    cluster = BlockingCluster(access()[0])
    cluster.commit(group, "g", offsets)
    assert [(a, code, f["queueId"], f["commitOffset"]) for a, code, f in links.asked] == [
        ("master:1", RequestCode.UPDATE_CONSUMER_OFFSET, "0", "0"),
        ("master:1", RequestCode.UPDATE_CONSUMER_OFFSET, "1", "10"),
    ]
    assert links.closed == ["master:1"]
    links = Links(monkeypatch, lambda *_: Command(ResponseCode.NO_PERMISSION, remark="not yours"))
    with pytest.raises(ReplyError, match="not yours"):
        cluster.commit(group, "g", offsets)
    assert links.closed == ["master:1"]


def test_committed_offsets_come_from_a_slave_where_there_is_no_master(monkeypatch: pytest.MonkeyPatch) -> None:
    body = b'{"dataVersion":{"counter":1,"timestamp":1},"offsetTable":{"t@g":{0:7}}}'
    links = Links(monkeypatch, lambda *_: Command(ResponseCode.SUCCESS, body=body))
    found = BlockingCluster(access()[0]).committed_offsets(BrokerGroup(cluster="c", name="b", addresses={1: "s:1"}))
    assert found == {"t@g": {0: 7}}
    assert links.asked[0][0] == "s:1"


def test_the_end_of_a_log_that_nobody_tells_is_minus_one(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = BlockingCluster(access()[0])
    Links(monkeypatch, lambda *_: Command(ResponseCode.SUCCESS, body=b'{"table":{"commitLogMaxOffset":"42"}}'))
    assert cluster.log_end("x:1") == 42
    for nothing in (Command(ResponseCode.SUCCESS, body=b"nonsense"), RequestTimeout("x"), Command(1, remark="no")):
        Links(monkeypatch, lambda *_, answer=nothing: answer)
        assert cluster.log_end("x:1") == -1


def test_a_wrong_name_server_list_is_named() -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        BlockingCluster(ClusterAccess(namesrv="nowhere"))
