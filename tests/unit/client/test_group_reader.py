"""Bulk reads from whichever member of a broker group answers."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tandemq.client import group_reader
from tandemq.client.blocking_cluster import BlockingCluster, ClusterAccess
from tandemq.client.bulk import Chunk
from tandemq.client.group_reader import CHOICE_SECONDS, GroupReader
from tandemq.errors import ConnectionLost, NoRoute
from tandemq.model.read_from import ReadFrom
from tandemq.model.route import BrokerGroup
from tandemq.model.topic import QueueRef

QUEUE = QueueRef("t", "b", 0)
PAIR = BrokerGroup(cluster="c", name="b", addresses={0: "master:1", 1: "slave:1"})


class Clock:
    now = 0.0

    def wall_ms(self) -> int:
        return 0

    def monotonic(self) -> float:
        return self.now


class Reader:
    """Gives chunks of ten offsets; an address in `broken` loses its connection after the chunk at that offset."""

    broken: dict[str, int]
    opened: list[str]

    def __init__(self, address: str, **_: Any) -> None:
        self.address = address
        Reader.opened.append(address)

    def close(self) -> None: ...

    def read(
        self, topic: str, queue_id: int, start: int, stop: int, *, on_gap: Callable[[int, int], None], **_: str
    ) -> Iterator[Chunk]:
        for at in range(start, stop, 10):
            if Reader.broken.get(self.address, 1 << 60) <= at:
                raise ConnectionLost(f"{self.address}: closed")
            yield Chunk(b"%s@%d" % (self.address.encode(), at), at + 10)


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    Reader.broken, Reader.opened = {}, []
    monkeypatch.setattr(group_reader, "QueueReader", Reader)
    return []


def readers(
    monkeypatch: pytest.MonkeyPatch,
    reports: list[str],
    groups: Callable[[], dict[str, BrokerGroup]] = lambda: {"b": PAIR},
    ends: dict[str, int] | None = None,
    **given: Any,
) -> GroupReader:
    log_ends = ends or {"master:1": 100, "slave:1": 100}
    monkeypatch.setattr(BlockingCluster, "groups", lambda self: groups())
    monkeypatch.setattr(BlockingCluster, "log_end", lambda self, address: log_ends[address])
    access = ClusterAccess(namesrv="a:1", retries=2, pause=lambda _: None, report=reports.append)
    return GroupReader(BlockingCluster(access), consumer_group="g", **given)


def no_gap(expected: int, found: int) -> None:
    raise AssertionError((expected, found))


@pytest.mark.parametrize(
    ("read_from", "ends", "order"),
    [
        (ReadFrom.SLAVE, {"master:1": 100, "slave:1": 100}, ("slave:1", "master:1")),
        (ReadFrom.SLAVE, {"master:1": 500, "slave:1": 100}, ("master:1", "slave:1")),
        (ReadFrom.SLAVE, {"master:1": 100, "slave:1": -1}, ("master:1", "slave:1")),
        (ReadFrom.MASTER, {}, ("master:1",)),
        (ReadFrom.ANY, {}, ("master:1", "slave:1")),
    ],
)
def test_members_are_asked_in_the_order_of_preference(
    monkeypatch: pytest.MonkeyPatch, reports: list[str], read_from: ReadFrom, ends: dict[str, int], order: tuple[str]
) -> None:
    found = readers(monkeypatch, reports, ends=ends, read_from=read_from, slave_lag_max_bytes=200)
    assert found.members("b") == order


def test_a_choice_is_kept_for_a_while_only(monkeypatch: pytest.MonkeyPatch, reports: list[str]) -> None:
    ends, clock = {"master:1": 100, "slave:1": 100}, Clock()
    found = readers(monkeypatch, reports, ends=ends, slave_lag_max_bytes=10, clock=clock)
    assert found.members("b")[0] == "slave:1"
    ends["master:1"] = 1000
    assert found.members("b")[0] == "slave:1"
    clock.now = CHOICE_SECONDS
    assert found.members("b")[0] == "master:1"


def test_a_broken_read_goes_on_at_the_next_member_where_it_stopped(
    monkeypatch: pytest.MonkeyPatch, reports: list[str]
) -> None:
    Reader.broken = {"slave:1": 20}
    found = readers(monkeypatch, reports)
    chunks = list(found.read(QUEUE, 0, 40, on_gap=no_gap))
    assert chunks == [(b"slave:1@0", 10), (b"slave:1@10", 10), (b"master:1@20", 10), (b"master:1@30", 10)]
    assert len(reports) == 1
    assert "at 20" in reports[0]


def test_a_read_that_every_member_breaks_ends_with_the_last_error(
    monkeypatch: pytest.MonkeyPatch, reports: list[str]
) -> None:
    Reader.broken = {"slave:1": 0, "master:1": 0}
    with pytest.raises(ConnectionLost):
        list(readers(monkeypatch, reports).read(QUEUE, 0, 40, on_gap=no_gap))
    assert len(reports) == 5, "two retries of two members after the first"


def test_a_read_that_is_left_closes_its_connection(monkeypatch: pytest.MonkeyPatch, reports: list[str]) -> None:
    found = readers(monkeypatch, reports)
    chunks = found.read(QUEUE, 0, 40, on_gap=no_gap)
    next(chunks)
    assert found.open_addresses == ("slave:1",)
    chunks.close()  # type: ignore[attr-defined]
    assert found.open_addresses == ()


def test_a_group_that_left_the_name_servers_is_waited_for(monkeypatch: pytest.MonkeyPatch, reports: list[str]) -> None:
    """A broker that restarts unregisters first: a read in mid-flight must not die of that."""
    answers: list[dict[str, BrokerGroup]] = [{}, {}, {"b": PAIR}]
    found = readers(monkeypatch, reports, lambda: answers.pop(0), read_from=ReadFrom.MASTER)
    assert found.ask("b", lambda reader: reader.address) == "master:1"
    with pytest.raises(NoRoute, match="any more"):
        readers(monkeypatch, reports, dict).ask("b", lambda reader: reader.address)


def test_a_group_without_a_member_of_the_wanted_kind_is_named(
    monkeypatch: pytest.MonkeyPatch, reports: list[str]
) -> None:
    slave_only = BrokerGroup(cluster="c", name="b", addresses={1: "slave:1"})
    found = readers(monkeypatch, reports, lambda: {"b": slave_only}, read_from=ReadFrom.MASTER)
    with pytest.raises(NoRoute, match="readFrom=master"):
        found.members("b")


def test_addresses_serve_the_group_that_they_say_they_are_of(
    monkeypatch: pytest.MonkeyPatch, reports: list[str]
) -> None:
    """An observer is in no route; nobody else is asked in its place, and how far it is behind is known."""
    monkeypatch.setattr(BlockingCluster, "broker_name", lambda self, address: {"seer:1": "b", "seer:2": "c"}[address])
    ends = {"master:1": 500, "slave:1": 500, "seer:1": 420, "seer:2": 1}
    found = readers(monkeypatch, reports, ends=ends, addresses=("seer:1", "seer:2"))
    assert found.members("b") == ("seer:1",)
    assert found.chosen == {"b": group_reader.Chosen("seer:1", 80)}
    others = readers(monkeypatch, reports, ends=ends, addresses=("seer:2",))
    with pytest.raises(NoRoute, match=r"readFrom=seer:2: none of them is of broker group 'b'.*seer:2 of 'c'"):
        others.members("b")


def test_observers_are_those_that_members_and_other_observers_show(
    monkeypatch: pytest.MonkeyPatch, reports: list[str]
) -> None:
    """The one that is least behind comes first; no member of the group is asked for messages."""
    shown = {"slave:1": ["seer:1"], "seer:1": ["far:1", "seer:1"]}
    monkeypatch.setattr(BlockingCluster, "observers", lambda self, address: shown.get(address, []))
    ends = {"master:1": 500, "slave:1": 500, "seer:1": 420, "far:1": 450}
    found = readers(monkeypatch, reports, ends=ends, read_from=ReadFrom.OBSERVER)
    assert found.members("b") == ("far:1", "seer:1")
    assert found.chosen == {"b": group_reader.Chosen("far:1", 50)}
    shown.clear()
    with pytest.raises(NoRoute, match=r"readFrom=observer: no observer of broker group 'b' is known.*HOST:PORT"):
        readers(monkeypatch, reports, ends=ends, read_from=ReadFrom.OBSERVER).members("b")


def test_who_serves_a_group_and_how_far_it_is_behind(monkeypatch: pytest.MonkeyPatch, reports: list[str]) -> None:
    for read_from, ends, chosen in (
        (ReadFrom.SLAVE, {"master:1": 100, "slave:1": 90}, ("slave:1", 10)),
        (ReadFrom.SLAVE, {"master:1": -1, "slave:1": 90}, ("slave:1", -1)),
        (ReadFrom.MASTER, {}, ("master:1", 0)),
    ):
        found = readers(monkeypatch, reports, ends=ends, read_from=read_from)
        found.members("b")
        assert found.chosen == {"b": chosen}
