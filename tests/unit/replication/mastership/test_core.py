"""What the parts of a master share, and how it changes."""

from tests.unit.replication.masters import REGISTER, A, B

from tandemq.codec.ha_register import Register
from tandemq.model.ack_level import AckLevel
from tandemq.replication import register as registers
from tandemq.replication.acks import AckQueue
from tandemq.replication.decisions import Decision, LogEnds, Propose, Save
from tandemq.replication.epochs import ReplicaRecord
from tandemq.replication.mastership.core import MasterCore, MasterTerms


def core(home: str = "group") -> MasterCore:
    terms = MasterTerms(group="g", level=AckLevel(2), home=home)
    record = ReplicaRecord(A, register=REGISTER)
    return MasterCore(record, terms, LogEnds(0, 0, 0, 1 << 20), AckQueue(), lambda: "id", REGISTER, ordered=False)


def smaller() -> Register:
    return registers.with_in_sync(REGISTER, {A})


def test_a_swap_is_on_record_at_once_with_what_the_record_says_of_the_others() -> None:
    one, out = core(), list[Decision]()
    assert one.swap(out, smaller(), alone_from=7)
    assert one.register == smaller()
    saved = out[0]
    assert isinstance(saved, Save)
    assert (saved.record.members, saved.record.in_sync, saved.record.alone_from) == ({B}, frozenset(), 7)


def test_with_a_coordinator_a_swap_is_proposed_one_at_a_time_and_changes_nothing_yet() -> None:
    one, out = core("etcd:x"), list[Decision]()
    assert one.swap(out, smaller())
    assert out == [Propose(REGISTER, smaller())]
    assert one.register == REGISTER
    assert not one.swap(out, smaller()), "the first one has not been answered"
    assert one.proposed == smaller()


def test_every_save_carries_what_is_confirmed() -> None:
    one, out = core(), list[Decision]()
    one.confirmed = 300
    one.save(out, reigning=True)
    assert isinstance(out[0], Save)
    assert out[0].record.confirmed == 300
