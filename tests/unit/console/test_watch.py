"""A look at the cluster: who answers, who is gone, what changed; all of it bounded."""

import asyncio
from types import SimpleNamespace
from typing import Any

from tandemq.codec import bodies, fastjson
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command
from tandemq.console.watch import Watch
from tandemq.errors import RemotingError
from tandemq.model.route import BrokerGroup


class FakeCluster:
    """Name servers and brokers that answer, or don't."""

    def __init__(self) -> None:
        self.now = 1_000_000
        self.down: set[str] = set()
        self.hangs: set[str] = set()
        self.released = asyncio.Event()
        self.refuses = False
        self.addresses = {0: "10.0.0.1:1", 1: "10.0.0.2:1"}
        self.namesrv = SimpleNamespace(candidates=lambda: ("ns-1:1", "ns-2:1"))
        self.session = self

    def wall_ms(self) -> int:
        return self.now

    def monotonic(self) -> float:
        return self.now / 1000

    async def invoke(self, address: str, code: int, ext: Any, *, timeout_ms: int) -> Command:
        if address in self.hangs:
            await self.released.wait()
        if address in self.down:
            raise RemotingError(f"{address}: refused")
        if self.refuses:
            return Command(ResponseCode.NO_PERMISSION, {}, remark="access refused: no AccessKey given")
        if code == RequestCode.GET_BROKER_RUNTIME_INFO:
            return Command(ResponseCode.SUCCESS, {}, fastjson.dumps({"table": {"putTps": "5.0 4.0 3.0"}}))
        group = BrokerGroup(cluster="c", name="a", addresses=self.addresses)
        return Command(ResponseCode.SUCCESS, {}, fastjson.dumps(bodies.cluster_info_json([group], {"c": ["a"]})))

    async def ha_detail(self, address: str, *, timeout_ms: int) -> dict[str, Any]:
        if address in self.down:
            raise RemotingError(f"{address}: refused")
        role = "master" if address == "10.0.0.1:1" else "slave"
        return {"kind": "TandemQ", "role": role, "phase": "open", "end": 9, "level": "1", "replicas": []}

    async def events(self, address: str) -> list[dict[str, Any]]:
        return [{"atMs": 5, "what": "Started", "text": address}]


def looked(cluster: FakeCluster, watch: Watch, times: int = 1) -> None:
    async def look() -> None:
        for _ in range(times):
            cluster.now += 1000
            await watch.look()
            await asyncio.gather(*(task for task in asyncio.all_tasks() if task is not asyncio.current_task()))

    asyncio.run(look())


def make() -> tuple[FakeCluster, Watch]:
    cluster = FakeCluster()
    admin: Any = cluster
    return cluster, Watch(admin, cluster)


def test_a_look_finds_the_pair_and_its_rates() -> None:
    cluster, watch = make()
    looked(cluster, watch)
    found = watch.snapshot
    assert [m.address for m in found.groups[0].members] == ["10.0.0.1:1", "10.0.0.2:1"]
    assert (found.in_tps, found.clusters, found.refused) == (10.0, ("c",), False)
    assert "Started" in [change.what for change in watch.timeline("a")]


def test_a_master_that_dies_is_kept_in_the_picture_though_no_name_server_lists_it() -> None:
    cluster, watch = make()
    looked(cluster, watch)
    cluster.down.add("10.0.0.1:1")
    cluster.addresses = {1: "10.0.0.2:1"}
    looked(cluster, watch)
    group = watch.snapshot.groups[0]
    assert group.word.startswith("no master")
    assert [(m.address, m.answers) for m in group.members] == [("10.0.0.1:1", False), ("10.0.0.2:1", True)]
    assert [change.what for change in watch.changes] == ["Now", "Lost"]
    cluster.down.clear()
    looked(cluster, watch)
    assert watch.changes[1].what == "Back"


def test_a_name_server_that_is_down_is_a_warning() -> None:
    cluster, watch = make()
    cluster.down.add("ns-1:1")
    looked(cluster, watch)
    assert [(s.address, s.answers) for s in watch.snapshot.name_servers] == [("ns-1:1", False), ("ns-2:1", True)]
    assert watch.snapshot.problem == ""
    assert len(watch.snapshot.groups) == 1
    cluster.down.add("ns-2:1")
    looked(cluster, watch)
    assert "ns-1:1" in watch.snapshot.problem
    assert len(watch.snapshot.groups) == 1, "what was known is asked for on"


def test_a_cluster_that_wants_an_account_says_so() -> None:
    cluster, watch = make()
    cluster.refuses = True
    looked(cluster, watch)
    assert watch.snapshot.refusal == "access refused: no AccessKey given"


def test_a_lost_connection_is_told_at_once_though_another_node_hangs() -> None:
    """Pages say within two seconds that the master is gone: they wait for no look, and for no name server."""
    cluster, watch = make()

    async def story() -> None:
        await watch.look()
        seen = watch.snapshot.number
        cluster.hangs.add("ns-1:1")
        looking = asyncio.create_task(watch.look())
        await asyncio.sleep(0)
        cluster.down.add("10.0.0.1:1")
        watch.lost("10.0.0.1:1")
        found = await asyncio.wait_for(watch.after(seen), 10)
        assert found.groups[0].word.startswith("no master")
        assert not looking.done()
        cluster.hangs.clear()
        cluster.released.set()
        await looking
        assert watch.snapshot.groups[0].word.startswith("no master"), "an older answer does not bring it back"
        await watch.stop()

    asyncio.run(story())


def test_brokers_are_asked_on_while_no_name_server_answers() -> None:
    cluster, watch = make()
    looked(cluster, watch)
    cluster.down.update({"ns-1:1", "ns-2:1"})
    looked(cluster, watch, 3)
    cluster.down.add("10.0.0.1:1")
    looked(cluster, watch)
    assert watch.snapshot.groups[0].word.startswith("no master")
