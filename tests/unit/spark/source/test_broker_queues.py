"""Which queues of a live cluster are read; what the tasks of one process share."""

import pickle

import pytest

from tandemq.client import group_reader
from tandemq.client.blocking_cluster import ClusterAccess
from tandemq.client.group_reader import Chosen, GroupReader
from tandemq.errors import ConfigError, NoRoute
from tandemq.model.route import BrokerGroup, QueueData, TopicRoute
from tandemq.model.topic import QueueRef
from tandemq.spark.options import PullOptions, parse
from tandemq.spark.source import broker_queues
from tandemq.spark.source.broker_queues import BrokerAccess, assigned_queues
from tandemq.spark.source.offsets import PLAIN, Numbering


def options(**given: str) -> PullOptions:
    return parse(PullOptions, {"nameserver": "a:1", "subscribe": "t", "retries": "3", "retryIntervalMs": "1", **given})


def test_tasks_of_one_process_share_what_they_found_out() -> None:
    """Each task unpickles its reader; asking every member who is in sync again would cost more than the data."""
    one, other = (pickle.loads(pickle.dumps(BrokerAccess(options(groupId="shared")))) for _ in range(2))
    assert one is other
    assert one is not pickle.loads(pickle.dumps(BrokerAccess(options(groupId="else"))))


def test_the_cluster_is_asked_with_the_options_of_the_source() -> None:
    access = options(accessKey="a", secretKey="s", requestTimeoutMs="700").cluster_access()
    assert (access.namesrv, access.retries, access.retry_interval_s, access.timeout_s) == ("a:1", 3, 0.001, 0.7)
    assert access.credentials is not None
    assert access.credentials.access_key == "a"
    assert options().cluster_access().credentials is None


def route(*brokers: tuple[str, int], perm: int = 6) -> TopicRoute:
    return TopicRoute(
        queues=tuple(QueueData(broker_name=name, read_queues=n, write_queues=n, perm=perm) for name, n in brokers),
        groups=tuple(BrokerGroup(cluster="c", name=name, addresses={0: f"{name}:1"}) for name, _ in brokers),
    )


class FakeCluster:
    """Routes by topic; counts how often each was asked for."""

    def __init__(self, **routes: TopicRoute) -> None:
        self.routes = routes
        self.asked: list[str] = []

    def route(self, topic: str) -> TopicRoute | None:
        self.asked.append(topic)
        return self.routes.get(topic)

    def topics(self) -> list[str]:
        return sorted(self.routes)


def access(cluster: FakeCluster, **given: str) -> BrokerAccess:
    made = BrokerAccess(options(**given))
    made._cluster = cluster  # type: ignore[assignment]
    return made


def test_queues_of_all_groups_that_may_be_read() -> None:
    cluster = FakeCluster(t=route(("a", 2), ("b", 1)), u=route(("a", 1), perm=2))
    assert access(cluster, subscribe="t,u")._queues() == [
        QueueRef("t", "a", 0),
        QueueRef("t", "a", 1),
        QueueRef("t", "b", 0),
    ]
    with pytest.raises(NoRoute, match="no name server knows topic 'gone'"):
        access(cluster, subscribe="gone")._queues()


def test_a_pattern_takes_whole_names_and_new_topics() -> None:
    cluster = FakeCluster(orders=route(("a", 1)), orders2=route(("a", 1)), RMQ_SYS_TRACE_TOPIC=route(("a", 1)))
    made = access(cluster, subscribe="", subscribePattern="orders.*")
    assert {queue.topic for queue in made._queues()} == {"orders", "orders2"}
    cluster.routes["orders3"] = route(("a", 1))
    assert {queue.topic for queue in made._queues()} == {"orders", "orders2", "orders3"}


def test_routes_are_kept_for_a_while() -> None:
    """A trigger must not ask for a thousand routes."""
    cluster = FakeCluster(t=route(("a", 2)))
    made = access(cluster)
    for _ in range(5):
        made._queues()
    assert cluster.asked == ["t"]


def test_partitions_are_numbered_over_groups_for_kafka_only() -> None:
    cluster = FakeCluster(t=route(("b", 2), ("a", 2)))
    made = access(cluster, schema="kafka")
    made._queues()
    assert made.numbering.number(QueueRef("t", "b", 1)) == 3
    plain = access(cluster)
    plain._queues()
    assert plain.numbering.number(QueueRef("t", "b", 1)) == 1


def test_assign_names_queues_and_unknown_ones_are_refused() -> None:
    queues = [QueueRef("t", "a", 0), QueueRef("t", "a", 1), QueueRef("t", "b", 0)]
    given = {"subscribe": "", "assign": '{"t": [0]}'}
    assert assigned_queues(options(**given), queues, PLAIN) == [queues[0], queues[2]]
    given["assign"] = '{"b/t": [0]}'
    assert assigned_queues(options(**given), queues, PLAIN) == [queues[2]]
    given["assign"] = '{"t": [2]}'
    assert assigned_queues(options(**given), queues, Numbering.of({("t", "a"): 2, ("t", "b"): 1})) == [queues[2]]
    with pytest.raises(ConfigError, match="there is no queue 2 of 't'; there are a/t/0, a/t/1, b/t/0"):
        assigned_queues(options(**given), queues, PLAIN)


def test_the_broker_filters_by_tags_or_sql() -> None:
    assert BrokerAccess(options())._expression() == ("*", "TAG")
    assert BrokerAccess(options(tags="b, a"))._expression() == ("a || b", "TAG")
    assert BrokerAccess(options(sql="n > 1"))._expression() == ("n > 1", "SQL92")


class LaggingPair:
    """A reader of one member: the master has twenty messages, the slave and whoever else is asked has twelve."""

    def __init__(self, address: str, **_: object) -> None:
        self.end = 20 if address == "b:1" else 12

    def ranges(self, queues: list[tuple[str, int]]) -> list[tuple[int, int]]:
        return [(0, self.end) for _ in queues]

    def offsets_at(self, places: list[tuple[str, int, int]]) -> list[int]:
        return [min(self.end, timestamp_ms) for _, _, timestamp_ms in places]

    def close(self) -> None: ...


class PairOfB(FakeCluster):
    """One group whose slave is a little behind."""

    def __init__(self, pulled: ClusterAccess) -> None:
        queues = (QueueData(broker_name="b", read_queues=1, write_queues=1, perm=6),)
        super().__init__(
            t=TopicRoute(queues=queues, groups=(BrokerGroup(cluster="c", name="b", addresses={0: "b:1", 1: "b:2"}),))
        )
        self.access = pulled

    def log_end(self, address: str) -> int:
        return 2000 if address == "b:1" else 1200

    def broker_name(self, address: str) -> str:
        return "b"


def lagging_pair(monkeypatch: pytest.MonkeyPatch, **given: str) -> BrokerAccess:
    monkeypatch.setattr(group_reader, "QueueReader", LaggingPair)
    monkeypatch.setattr(broker_queues, "BlockingCluster", PairOfB)
    return BrokerAccess(options(**given))


def test_a_complete_read_ends_where_the_master_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that ended where a slave happens to be would lose rows in silence; the rest comes from the master."""
    pulled, queue = lagging_pair(monkeypatch), QueueRef("t", "b", 0)
    assert pulled.ranges() == {queue: (0, 12)}
    assert pulled.ranges(complete=True) == {queue: (0, 20)}
    assert pulled.at_time({queue: 15}) == {queue: 15}


def test_what_a_named_replica_lacks_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody else is read then, so the read ends where the replica does, but not without a word."""
    pulled = lagging_pair(monkeypatch, readFrom="b:3")
    assert pulled.ranges(complete=True) == {QueueRef("t", "b", 0): (0, 12)}
    told = capsys.readouterr().err
    assert "readFrom=b:3: 8 messages that the master of b has are not there yet" in told
    assert "b/t/0 lacks 8" in told


def test_a_named_replica_whose_master_is_away_is_not_read_without_a_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pulled = lagging_pair(monkeypatch, readFrom="b:3")
    monkeypatch.setattr(GroupReader, "master", lambda self, broker: (None, True))
    monkeypatch.setattr(GroupReader, "chosen", {"b": Chosen("b:3", -1)})
    assert pulled.ranges(complete=True) == {QueueRef("t", "b", 0): (0, 12)}
    assert "the master of b can't be asked, so whether messages are missing there is not known" in (
        capsys.readouterr().err
    )
