"""What readers of a master may see."""

import msgspec
from tests.unit.replication.masters import HISTORY, REGISTER, A, Master

from tandemq.model.ack_level import AckLevel
from tandemq.replication.decisions import Confirm, FlushSoon
from tandemq.replication.epochs import Promise, ReplicaRecord, from_items


def test_readers_see_what_has_the_copies_of_the_default_level() -> None:
    master = Master().opened()
    master.start_session(1, 1000)
    assert master.state.confirmed == 1000
    master.act(master.state.appended(1100))
    assert master.state.confirmed == 1000
    master.acked(1, 1100)
    assert master.last(Confirm).offset == 1100


def test_with_one_copy_an_append_is_enough() -> None:
    master = Master(level=AckLevel(1)).opened()
    master.act(master.state.appended(1100))
    assert master.state.confirmed == 1100


def test_a_master_left_alone_shows_what_is_on_its_own_disk() -> None:
    alone = msgspec.structs.replace(REGISTER, in_sync=(A,))
    record = ReplicaRecord(A, history=from_items(HISTORY), promise=Promise(3, "e3"), register=alone, reigning=True)
    master = Master(record.with_(members=frozenset({"b:1#1"})))
    assert master.state.provisional
    master.act(master.state.appended(1100))
    assert master.state.confirmed == 1000
    assert isinstance(master.happened[-1], FlushSoon), "readers wait for that flush"
    master.act(master.state.flushed(1100))
    assert master.state.confirmed == 1100
