"""What happened is what differs between two snapshots."""

from dataclasses import replace

from tandemq.broker.telemetry.events import KEPT_MAX, EventLog, changes
from tandemq.replication.status import HaStatus, ReplicaStatus

MASTER = HaStatus("master", "open", "a#1", "g", 3, 0, 100, 100, 100, "2")
SLAVE = ReplicaStatus("b:1#2", "b:1", "p", "in sync", "extended", 1, 1, 1, 0, 0, 0.0, in_sync=True)


def whats(before: HaStatus | None, after: HaStatus) -> list[str]:
    return [what for what, _, _ in changes(before, after)]


def test_the_first_look_tells_the_start() -> None:
    assert whats(None, MASTER) == ["Started"]
    assert whats(MASTER, MASTER) == []


def test_slaves_join_fall_behind_come_back_and_leave() -> None:
    paired = replace(MASTER, replicas=(SLAVE,))
    behind = replace(SLAVE, in_sync=False, state="behind", reason="disk-full", error="93 % used")
    short = replace(MASTER, replicas=(behind,))
    assert whats(MASTER, paired) == ["Joined"]
    assert [*changes(paired, short)] == [
        ("Fell behind", "b:1 left the in-sync set: disk-full, 93 % used", "catching-up")
    ]
    assert whats(short, paired) == ["In sync"]
    assert whats(paired, MASTER) == ["Left"]


def test_a_change_of_reign_and_a_cut_are_told() -> None:
    follower = replace(MASTER, role="slave", phase="following", epoch=4, master="c:2", cuts=("17 bytes at 83",))
    assert whats(MASTER, follower) == ["Demoted", "Epoch", "Phase", "Follows", "Cut"]


def test_the_log_is_bounded_and_newest_first() -> None:
    log = EventLog()
    log.look(None, 0)
    for epoch in range(KEPT_MAX + 5):
        log.look(replace(MASTER, epoch=epoch), epoch)
    kept = log.newest(1000)
    assert len(kept) == KEPT_MAX
    assert kept[0]["atMs"] == KEPT_MAX + 4
    assert log.newest(-1) == []
