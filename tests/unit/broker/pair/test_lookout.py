"""Asking around in the group: who answers, who is somebody else, whom a slave names."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tandemq.broker.pair import lookout
from tandemq.broker.pair.lookout import Lookout, claim_of, register_facts, seen_of
from tandemq.broker.pair.peer_book import PeerBook
from tandemq.codec import bodies, fastjson
from tandemq.codec.command import Command
from tandemq.codec.ha_register import Member, Register
from tandemq.errors import ConnectFailed
from tandemq.model.route import BrokerGroup
from tandemq.sim.disk import MemoryDisk

REGISTER = Register(
    group_id="g1", epoch=4, epoch_id="e", holder="10.0.0.1:10911#a", revision=2,
    members=(Member("10.0.0.1:10911#a", "10.0.0.1:10911", 0),), in_sync=("10.0.0.1:10911#a",),
)  # fmt: skip


def test_a_members_answer_is_read() -> None:
    info = {"tandemqHa": "1", "tandemqPhase": "open", "tandemqEpoch": "4", "tandemqEpochId": "e", "tandemqEnd": "77"}
    found = seen_of("a:1", info | register_facts(REGISTER, "me#x"))
    assert (found.is_master, found.is_open, found.claim, found.end) == (True, True, (4, "e"), 77)
    assert (found.group_id, found.register, found.holder) == ("g1", (4, 2), "10.0.0.1:10911#a")
    assert found.holder_address == "10.0.0.1:10911"


def test_rocketmqs_answer_has_none_of_it() -> None:
    found = seen_of("a:1", {"masterAddress": "b:1"})
    assert (found.is_master, found.is_open, found.claim, found.end, found.register) == (
        False,
        False,
        (0, ""),
        0,
        (0, 0),
    )


@pytest.mark.parametrize("text", ["x.1", "1", "1.x", "-1.2", ""])
def test_nonsense_is_no_register_and_no_claim(text: str) -> None:
    found = seen_of("a:1", {"tandemqRegister": text, "tandemqEnd": text})
    assert (found.register, found.group_id) == ((0, 0), "")
    assert claim_of({"tandemqEpoch": "x"}) == (0, "")


def test_a_broker_without_a_register_tells_only_who_it_is() -> None:
    assert register_facts(None, "me#x") == {"tandemqReplica": "me#x"}


class Group:
    """Name servers and brokers by address; whoever is missing can't be reached."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[int, str]] = {}
        self.answers: dict[str, dict[str, str]] = {}
        self.asked: list[str] = []
        disk = MemoryDisk()
        disk.make_directory(Path("/store"))
        self.book = PeerBook(disk, Path("/store/peers"))

    async def invoke(self, address: str, command: Command, seconds: float) -> Command:
        if address not in self.tables:
            raise ConnectFailed(address)
        groups = [BrokerGroup(cluster="c", name="a", addresses=self.tables[address])]
        body = fastjson.dumps_unquoted(bodies.cluster_info_json(groups, {"c": {"a"}}))
        return Command(0, {}, body)

    async def ask(self, client: object, address: str, seconds: float) -> dict[str, str]:
        self.asked.append(address)
        if address not in self.answers:
            raise ConnectFailed(address)
        return self.answers[address]

    def look(self, monkeypatch: pytest.MonkeyPatch, servers: list[str]) -> Any:
        monkeypatch.setattr(lookout, "ask_ha_info", self.ask)
        live: Any = SimpleNamespace(broker=SimpleNamespace(namesrv_addresses=servers, broker_name="a"))
        one: Any = self
        return asyncio.run(Lookout(one, one, live, "group", "me:1", self.book).look(1.0))


def test_everybody_named_is_asked_once_and_whoever_is_silent_is_seen_so(monkeypatch: pytest.MonkeyPatch) -> None:
    group = Group()
    group.tables = {"ns1": {0: "me:1", 1: "b:1"}, "ns2": {0: "c:1", 1: "b:1"}}
    group.answers = {"b:1": {"tandemqGroup": "group", "tandemqFollows": "d:1"}, "d:1": {"tandemqHa": "1"}}
    group.book.note(["e:1"])
    view = group.look(monkeypatch, ["ns1", "ns2", "gone"])
    assert group.asked == ["b:1", "c:1", "e:1", "d:1"], "whom a slave follows is asked as well"
    assert {one.address: one.answered for one in view.seen} == {"b:1": True, "c:1": False, "e:1": False, "d:1": True}
    assert (view.holder, view.servers_answered) == ("c:1", True)
    assert set(group.book.addresses) >= {"b:1", "d:1"}


def test_a_broker_of_another_group_at_a_known_address_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    group = Group()
    group.book.note(["b:1"])
    group.answers = {"b:1": {"tandemqGroup": "other"}}
    view = group.look(monkeypatch, [])
    assert (view.seen, view.servers_answered, group.book.addresses) == ([], False, ())
