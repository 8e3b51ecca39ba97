"""Coordinator, lease, elections and register in words, whatever brokers tell of them."""

from typing import Any

from tandemq.console.picture import Report, draw_group
from tandemq.console.reign_facts import coordination_facts, facts_of

MASTER: dict[str, Any] = {
    "place": "etcd://10.0.0.9:2379/shop", "answers": True, "trouble": "", "revision": 7, "lease_seconds": 5.0,
    "lease_left": 3.2, "vouched": False, "holder": "m:1#x", "priority": 2, "hindrance": "", "refusal": "",
    "verdict": "m:1#0123456789abcdef reigns", "elections": {}, "without_master_ms": 0,
}  # fmt: skip
SLAVE = {**MASTER, "lease_left": 0.0, "priority": 1, "hindrance": "it is 3 MiB behind", "verdict": ""}


def test_a_register_is_shown_whatever_it_holds() -> None:
    shown = dict(facts_of({"holder": "h:1#x", "in_sync": ["h:1#x", "i:1#y"], "lease": {"left_ms": 1400}, "none": None}))
    assert shown == {"holder": "h:1", "in sync": "h:1, i:1", "lease left": "1.4\u00a0s"}
    assert dict(facts_of({"electable": [], "group_id": "77"})) == {"electable": "nobody"}
    assert dict(facts_of({"members": [{"replica": "h:1#x", "address": "h:1"}]})) == {"members": "h:1"}


def test_the_lease_is_told_by_who_holds_it_and_each_says_whether_it_may_be_elected() -> None:
    sections = {title: dict(facts) for title, facts in coordination_facts({"s:1": SLAVE, "m:1": MASTER})}
    assert sections["Coordinator"] == {"place": "etcd://10.0.0.9:2379/shop", "state": "answers"}
    assert sections["Lease"] == {"holder": "m:1", "left": "3.2 of 5 s"}
    assert sections["Election"]["m:1"] == "m:1 reigns; priority 2"
    assert sections["Election"]["s:1"] == "can't be elected: it is 3 MiB behind; priority 1"


def test_a_coordinator_that_is_away_says_why_and_flags_are_told() -> None:
    away = {**SLAVE, "answers": False, "trouble": "refused", "paused": True, "pinned": True, "lapsed": True,
            "vouched": True, "one_copy_in": 2.0, "without_master_ms": 900}  # fmt: skip
    sections = {title: dict(facts) for title, facts in coordination_facts({"s:1": away})}
    assert sections["Coordinator"]["state"] == "does not answer: refused"
    assert sections["Lease"]["left"] == "nobody holds it"
    assert {"elections", "master", "state", "kept by", "one copy is enough in"} <= sections["Lease"].keys()


def test_a_broker_that_tells_less_is_shown_with_what_it_tells() -> None:
    assert coordination_facts({}) == []
    assert [title for title, _ in coordination_facts({"m:1": {}})] == ["Coordinator", "Lease", "Election"]


def test_the_picture_takes_coordination_from_those_who_answer() -> None:
    reports = [
        Report(group="a", broker_id=0, address="m:1", kind="TandemQ", heard_ms=1,
               detail={"role": "master", "coordination": MASTER}),
        Report(group="a", broker_id=1, address="s:1", kind="TandemQ", heard_ms=1, answers=False,
               detail={"role": "slave", "coordination": SLAVE}),
        Report(group="a", broker_id=2, address="t:1", kind="TandemQ", heard_ms=1,
               detail={"role": "slave", "coordination": None}),
    ]  # fmt: skip
    assert draw_group("a", reports, 2).coordination == {"m:1": MASTER}
