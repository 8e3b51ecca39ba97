"""What is tried again, and how often: starts of a query, name servers, groups that are restarting."""

import pickle
from typing import Any

import pytest

from tandemq.client.bulk import QueueReader
from tandemq.errors import ConnectFailed, NoRoute, RequestTimeout
from tandemq.model.route import BrokerGroup
from tandemq.spark import broker_access
from tandemq.spark.broker_access import BrokerAccess, Cluster
from tandemq.spark.options import PullOptions, parse
from tandemq.spark.streams import started


class Writer:
    """Starts queries that end as listed: an error's text, or "" for a good one."""

    def __init__(self, *ends: str) -> None:
        self._ends = list(ends)
        self.starts = 0

    def start(self) -> "Writer":
        self.starts += 1
        return self

    @property
    def isActive(self) -> bool:
        return True

    @property
    def lastProgress(self) -> dict[str, Any] | None:
        return None if self._ends[self.starts - 1] else {}

    def awaitTermination(self, seconds: float) -> bool:
        raise RuntimeError(self._ends[self.starts - 1])


LATE = "[STREAM_FAILED] terminated with exception: Python worker failed to connect back."


def test_a_query_whose_process_started_too_late_is_started_again() -> None:
    writer = Writer(LATE, LATE, "")
    assert started(writer) is writer
    assert writer.starts == 3


def test_any_other_error_of_a_query_is_raised_and_starts_have_an_end() -> None:
    with pytest.raises(RuntimeError, match="topic"):
        started(Writer("no such topic"))
    writer = Writer(*[LATE] * 9)
    with pytest.raises(RuntimeError, match="connect back"):
        started(writer)
    assert writer.starts == 5


def options(**given: str) -> PullOptions:
    return parse(PullOptions, {"nameserver": "a:1", "subscribe": "t", "retries": "3", "retryIntervalMs": "1", **given})


def failing_links(monkeypatch: pytest.MonkeyPatch, error: Exception) -> list[str]:
    asked: list[str] = []

    def link(address: str, **_: Any) -> Any:
        asked.append(address)
        raise error

    monkeypatch.setattr(broker_access, "BlockingLink", link)
    return asked


def test_a_busy_name_server_is_asked_again_a_wrong_address_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = failing_links(monkeypatch, RequestTimeout("a:1: no answer within 10 s"))
    with pytest.raises(NoRoute, match="none answers"):
        Cluster(options()).topics()
    assert len(asked) == 4
    asked = failing_links(monkeypatch, ConnectFailed("a:1: refused"))
    with pytest.raises(NoRoute, match="refused"):
        Cluster(options()).topics()
    assert len(asked) == 1


def test_tasks_of_one_process_share_what_they_found_out() -> None:
    """Each task unpickles its reader; asking every member who is in sync again would cost more than the data."""
    one, other = (pickle.loads(pickle.dumps(BrokerAccess(options(groupId="shared")))) for _ in range(2))
    assert one._choices is other._choices
    assert one._choices is not pickle.loads(pickle.dumps(BrokerAccess(options(groupId="else"))))._choices


def test_a_group_that_left_the_name_servers_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that restarts unregisters first: a read in mid-flight must not die of that."""
    access = BrokerAccess(options())
    group = BrokerGroup(cluster="c", name="b", addresses={0: "x:1"})
    answers: list[dict[str, BrokerGroup]] = [{}, {}, {"b": group}]
    monkeypatch.setattr(Cluster, "groups", lambda self: answers.pop(0))
    monkeypatch.setattr(BrokerAccess, "_reader", lambda self, address: address)

    def ask(reader: QueueReader) -> str:
        return str(reader)

    assert access._with_member("b", ask) == "x:1"
    answers = [{}] * 9
    access = BrokerAccess(options())
    with pytest.raises(NoRoute, match="any more"):
        access._with_member("b", ask)
