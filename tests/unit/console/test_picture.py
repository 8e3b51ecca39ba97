"""From what nodes say to what a person is told."""

from dataclasses import replace
from typing import Any

import pytest

from tandemq.console.picture import CATCHING_UP, DANGER, HEALTHY, READ_ONLY, UNKNOWN, Report, draw, draw_group

NOW = 1_000_000


def slave_entry(**changes: Any) -> dict[str, Any]:
    return {
        "replica": "10.0.0.2:10911#b", "address": "10.0.0.2:10911", "state": "in sync", "protocol": "extended",
        "received": 1000, "durable": 1000, "applied": 1000, "lag_bytes": 0, "lag_ms": 0, "rate": 0.0, "in_sync": True,
        **changes,
    }  # fmt: skip


def master(**changes: Any) -> Report:
    detail = {
        "role": "master", "phase": "open", "epoch": 3, "end": 1000, "flushed": 1000, "confirmed": 1000, "level": "2",
        "writable": True, "replicas": [slave_entry()], "brokerRole": "SYNC_MASTER", **changes,
    }  # fmt: skip
    return Report(group="a", broker_id=0, address="10.0.0.1:10911", kind="TandemQ", detail=detail, heard_ms=NOW)


def slave(**changes: Any) -> Report:
    detail = {
        "role": "slave", "phase": "following", "epoch": 3, "end": 1000, "flushed": 900, "confirmed": 1000,
        "master": "10.0.0.1:10912", "master_replica": "10.0.0.1:10911#a", "brokerRole": "SLAVE", **changes,
    }  # fmt: skip
    return Report(group="a", broker_id=1, address="10.0.0.2:10911", kind="TandemQ", detail=detail, heard_ms=NOW)


def test_a_pair_in_sync_is_healthy_and_says_what_it_promises() -> None:
    group = draw_group("a", [master(), slave()], NOW)
    assert (group.tone, group.word, group.takes_messages) == (HEALTHY, "healthy", True)
    assert group.strong == "Every acknowledged message is on two nodes."
    first, second = group.members
    assert (first.is_master, first.state) == (True, "open")
    assert (second.state, second.follows, second.durable, second.applied) == ("in sync", "10.0.0.1:10911", 900, 1000)


def test_a_dead_master_is_told_with_since_when_and_that_slaves_serve() -> None:
    gone = replace(master(), answers=False, error="refused", heard_ms=NOW - 1900)
    group = draw_group("a", [gone, slave()], NOW)
    assert (group.tone, group.takes_messages) == (DANGER, False)
    assert group.word.replace("\u00a0", " ") == "no master for 1.9 s"
    assert "consumers read on" in group.rest
    assert group.members[0].state.startswith("absent for")
    assert group.members[0].received == 1000, "its last known place is kept"
    assert group.members[0].notes[0].reason == "unreachable"


def test_a_slave_that_fell_behind_is_told_with_reason_and_advice() -> None:
    entry = slave_entry(
        in_sync=False, state="catching up", lag_bytes=5000, error="more than 256 MiB behind", reason="fell-behind",
        advice="nothing",
    )  # fmt: skip
    group = draw_group("a", [master(replicas=[entry]), slave()], NOW)
    assert (group.tone, group.word) == (CATCHING_UP, "0 of 1 slave in sync")
    assert group.strong == "One copy only."
    note = group.members[1].notes[0]
    assert (note.reason, note.advice) == ("fell-behind", "nothing")


def test_a_master_that_waits_is_read_only_and_names_whom_it_waits_for() -> None:
    waiting = master(phase="asking", writable=False, refusal="it asks first", waiting_for=["10.0.0.2:10911#b"])
    group = draw_group("a", [waiting, slave()], NOW)
    assert (group.tone, group.takes_messages) == (READ_ONLY, False)
    assert "10.0.0.2:10911" in group.members[0].notes[0].text


def test_of_two_that_claim_to_be_master_the_one_that_writes_reigns() -> None:
    old = replace(master(writable=False, epoch=2), address="10.0.0.9:10911", broker_id=0)
    group = draw_group("a", [old, master(), slave()], NOW)
    assert [m.address for m in group.members if m.is_master] == ["10.0.0.1:10911"]
    assert group.epoch == 3


def test_a_lone_master_that_needs_no_copies_is_healthy() -> None:
    assert draw_group("a", [master(level="1", replicas=[])], NOW).tone == HEALTHY
    assert draw_group("a", [master(replicas=[])], NOW).tone == CATCHING_UP


def test_rocketmq_4_is_not_known_rather_than_healthy() -> None:
    report = Report(group="a", broker_id=0, address="h:1", kind="RocketMQ 4", detail={"replicas": []}, heard_ms=NOW)
    group = draw_group("a", [report], NOW)
    assert (group.tone, group.word) == (UNKNOWN, "no HA details")


@pytest.mark.parametrize("peer", ["/10.0.0.2:45578", "192.168.7.7:45578"])
def test_rocketmq_5_knows_slaves_by_where_their_connection_came_from(peer: str) -> None:
    """Another port, and on a machine with several addresses another address: it is one slave all the same."""
    link = {"address": peer, "protocol": "classic", "in_sync": True, "state": "in sync", "received": 990}
    five = replace(master(replicas=[link]), kind="RocketMQ 5")
    follower = Report(group="a", broker_id=1, address="10.0.0.2:10911", kind="RocketMQ 5", heard_ms=NOW,
                      detail={"role": "slave", "phase": "following", "end": 990})  # fmt: skip
    group = draw_group("a", [five, follower], NOW)
    assert [m.address for m in group.members] == ["10.0.0.1:10911", "10.0.0.2:10911"]
    assert (group.members[1].state, group.tone) == ("in sync", HEALTHY)


def test_a_slave_of_a_slave_is_drawn_below_it() -> None:
    third = replace(slave(master_replica="10.0.0.2:10911#b", observer=True), address="10.0.0.3:10911", broker_id=2)
    group = draw_group("a", [master(), slave(), third], NOW)
    assert (group.members[2].is_deep, group.members[2].observer) == (True, True)
    assert group.tone == HEALTHY, "an observer is never counted"


def test_a_slave_that_no_name_server_lists_is_known_by_its_master() -> None:
    group = draw_group("a", [master()], NOW)
    assert [m.address for m in group.members] == ["10.0.0.1:10911", "10.0.0.2:10911"]


def test_an_account_that_is_not_told_is_not_shown_health() -> None:
    report = Report(group="a", broker_id=0, address="h:1", error="access refused: no permission", heard_ms=NOW)
    group = draw_group("a", [report], NOW)
    assert (group.tone, group.members[0].state) == (UNKNOWN, "not told to this account")


def test_the_worst_group_comes_first() -> None:
    well = replace(master(replicas=[], level="1"), group="b")
    gone = replace(master(), group="c", answers=False)
    assert [group.name for group in draw([well, gone], NOW)] == ["c", "b"]


def test_the_register_is_shown_when_a_broker_tells_it() -> None:
    assert draw_group("a", [master(register={"holder": "x"}), slave()], NOW).register == {"holder": "x"}


def test_a_master_that_died_and_was_succeeded_is_a_member_that_is_missing() -> None:
    replicas = [{"address": "c:1", "state": "in sync", "in_sync": True, "protocol": "extended", "lag_bytes": 0},
                {"address": "a:1", "state": "not connected", "in_sync": False, "lag_bytes": 70}]  # fmt: skip
    reigns = {"role": "master", "phase": "open", "epoch": 2, "end": 100, "level": "2", "replicas": replicas}
    reports = [
        Report(group="g", broker_id=0, address="a:1", kind="TandemQ", heard_ms=1, answers=False,
               detail={"role": "master", "epoch": 1, "end": 30}),
        Report(group="g", broker_id=0, address="b:1", kind="TandemQ", heard_ms=9, detail=reigns),
        Report(group="g", broker_id=2, address="c:1", kind="TandemQ", heard_ms=9,
               detail={"role": "slave", "phase": "following", "epoch": 2, "end": 100}),
    ]  # fmt: skip
    group = draw_group("g", reports, 10)
    assert [(m.address, m.is_master, m.tone) for m in group.members] == [
        ("b:1", True, "healthy"), ("a:1", False, "absent"), ("c:1", False, "healthy"),
    ]  # fmt: skip
    assert (group.tone, group.word, group.takes_messages) == ("catching-up", "1 of 2 slaves in sync", True)
