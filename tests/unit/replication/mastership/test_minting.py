"""A group of the version before gets its register."""

from tests.unit.replication.masters import HISTORY, A, B, Master, Peer

from tandemq.codec.ha_session import NewRegister, Registered
from tandemq.replication.decisions import Save
from tandemq.replication.epochs import Promise, ReplicaRecord, from_items
from tandemq.replication.mastership.core import Phase


def test_the_register_is_on_the_others_disks_before_the_master_has_it() -> None:
    record = ReplicaRecord(
        A, history=from_items(HISTORY), promise=Promise(3, "e3"), members=frozenset({B}), in_sync=frozenset({B})
    )
    master = Master(record)
    master.hear(Peer(register=None))
    assert master.state.phase is Phase.OPEN
    assert master.state.register is None, "the other one has not followed yet"
    master.start_session(1, 1000)
    minted = master.last(NewRegister).register
    assert minted.member_ids == {A, B}
    assert master.state.register is None
    assert all(save.record.register is None for save in master.told(Save))
    master.tell(1, Registered(minted.epoch, minted.revision))
    assert master.register == minted
    assert master.acks.group_size == 2
