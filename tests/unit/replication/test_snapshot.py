"""Snapshot: what people are shown of a master, its replicas, present and away, and of a slave."""

from types import SimpleNamespace
from typing import Any

from tests.unit.replication.masters import B, Master, Peer

from tandemq.codec.ha_reasons import Reason
from tandemq.replication.decisions import LogEnds
from tandemq.replication.epochs import ReplicaRecord
from tandemq.replication.first_copy import CopyProgress, MasterLog
from tandemq.replication.following.core import SlaveTerms
from tandemq.replication.slave_state import SlaveState
from tandemq.replication.snapshot import Snapshot


def snapshot(record: ReplicaRecord, *, now: float = 10.0, end: int = 1000, **health: Any) -> Snapshot:
    state = SimpleNamespace(**{"writable": True, "is_full": False, "reason": "", **health})
    store = SimpleNamespace(first_offset=0, appended=end, flushed=end, health=state)
    hands: Any = SimpleNamespace(store=store, cuts=["one"], cut_bytes=5)
    return Snapshot(hands, record, "g", "2", {"cut": 1}, now)


def test_a_node_without_a_role_says_so() -> None:
    status = snapshot(ReplicaRecord("a:1#1")).idle()
    assert (status.role, status.phase, status.end, status.cut_bytes, status.events) == (
        "none", "stopped", 1000, 5, {"cut": 1},
    )  # fmt: skip


def test_a_masters_replicas_have_their_lag_and_those_away_are_members_still() -> None:
    master = Master().opened()
    master.start_session(1, 1000)
    status = snapshot(master.state.record, end=1500).of_master(master.state, master.acks)
    assert (status.role, status.phase) == ("master", "open")
    (here,) = (one for one in status.replicas if one.replica == B)
    assert (here.protocol, here.received, here.lag_bytes) == ("extended", 1000, 500)
    master.act(master.state.disconnected(1, 4.0))
    status = snapshot(master.state.record, end=1500).of_master(master.state, master.acks)
    (away,) = (one for one in status.replicas if one.replica == B)
    assert (away.is_member, away.peer, away.received, away.lag_bytes) == (True, "", 1000, 500)
    assert (away.reason, away.error_age_ms) == (Reason.LOST.value, 6000)


def test_a_disk_that_takes_nothing_is_the_phase() -> None:
    master = Master().opened()
    full = snapshot(master.state.record, writable=False, is_full=True, reason="no room")
    status = full.of_master(master.state, master.acks)
    assert (status.phase, status.error, status.reason) == ("disk full", "no room", Reason.DISK_FULL.value)
    poisoned = snapshot(master.state.record, writable=False, reason="EIO").of_master(master.state, master.acks)
    assert poisoned.phase == "log poisoned"


def test_an_asking_master_names_whom_it_waits_for() -> None:
    master = Master()
    status = snapshot(master.state.record).of_master(master.state, master.acks)
    assert status.phase == "asking"
    assert status.waiting_for == tuple(sorted(master.state.waiting_for))
    master.hear(Peer(observer=True), session=2)
    status = snapshot(master.state.record).of_master(master.state, master.acks)
    assert all(not one.is_member for one in status.replicas if one.state == "observing")


def slave_shell(**more: Any) -> Any:
    state = SlaveState(
        record=ReplicaRecord("b:1#1"), terms=SlaveTerms("g"), log=LogEnds(0, 0, 0, 1 << 20), new_id=str, now=0.0
    )
    given = {
        "state": state,
        "trouble": None,
        "place": None,
        "received_bytes": 7,
        "progress": CopyProgress(None),
        **more,
    }
    return SimpleNamespace(**given)


def test_a_slave_without_a_session_says_why_and_since_when() -> None:
    shell = slave_shell(trouble=(4.0, Reason.UNREACHABLE, "nobody answers"))
    status = snapshot(ReplicaRecord("b:1#1")).of_slave(shell, None)
    assert (status.role, status.phase, status.protocol) == ("slave", "not connected", "extended")
    assert (status.error, status.reason, status.error_age_ms) == ("nobody answers", Reason.UNREACHABLE.value, 6000)
    assert status.received_bytes == 7


def test_a_slave_of_a_rocketmq_master_says_how_far_its_copy_is() -> None:
    progress = CopyProgress(None)
    progress.master = MasterLog(0, 4000)
    classic: Any = SimpleNamespace(is_connected=True, trouble=None)
    shell = slave_shell(state=classic, progress=progress)
    status = snapshot(ReplicaRecord("b:1#1")).of_slave(shell, None)
    assert (status.phase, status.protocol, status.confirmed) == ("following", "classic", 1000)
    assert (status.master_end, status.lag_bytes) == (4000, 3000)


def test_observers_of_a_slave_are_shown() -> None:
    session = observing_session()
    relay: Any = SimpleNamespace(state=SimpleNamespace(sessions={1: session}))
    status = snapshot(ReplicaRecord("b:1#1")).of_slave(slave_shell(), relay)
    assert [(one.replica, one.state, one.is_member) for one in status.replicas] == [("o:1#1", "observing", False)]


def observing_session() -> Any:
    master = Master().opened()
    session = master.state.sessions[1]
    session.follows_from(0, 0, 0, 0.0)
    session.observer, session.replica = True, "o:1#1"
    return session
