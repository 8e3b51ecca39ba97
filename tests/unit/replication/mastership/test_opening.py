"""From a log that is whole and on disk to the first write."""

from tests.unit.replication.masters import A, Master, Peer

from tandemq.codec.ha_session import NewRegister, Welcome
from tandemq.replication.decisions import Opened, Save
from tandemq.replication.epochs import ReplicaRecord
from tandemq.replication.mastership.core import Phase


def test_the_epoch_has_its_name_on_disk_before_anything_is_written_in_it() -> None:
    master = Master().opened()
    epoch = master.last(Opened).epoch
    named = [save.record for save in master.told(Save) if epoch in save.record.history.epochs]
    assert named
    assert named[0].reigning
    saves = [place for place, one in enumerate(master.happened) if isinstance(one, Save) and one.record is named[0]]
    assert saves[0] < master.place(Opened)


def test_it_opens_when_everybody_who_was_heard_has_stored_the_register() -> None:
    master = Master()
    master.hear(Peer())
    assert master.state.phase is Phase.SWAPPING
    assert master.told(NewRegister)
    assert not master.told(Opened)
    master.registered(1)
    assert master.state.phase is Phase.OPEN
    assert master.last(Welcome).open, "and may follow now"


def test_a_replica_lost_while_it_stores_the_register_is_asked_again_with_a_higher_number() -> None:
    master = Master()
    master.hear(Peer())
    before = master.state.number
    master.act(master.state.disconnected(1, 0.0))
    assert master.state.phase is Phase.ASKING
    assert master.state.number > before


def test_a_group_that_begins_has_its_register_with_its_first_epoch() -> None:
    master = Master(ReplicaRecord(A, blind_from=0))
    assert master.state.phase is Phase.OPEN
    assert master.register.member_ids == {A}
    assert master.register.epoch == master.last(Opened).epoch.number
