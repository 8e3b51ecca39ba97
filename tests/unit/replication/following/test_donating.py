"""Donating: giving back to a master what it lost."""

from tests.unit.replication.slaves import A, Slave

from tandemq.codec import ha_session as ha
from tandemq.codec.ha_classic import Chunk, Head
from tandemq.codec.ha_reasons import Reason
from tandemq.codec.ha_session import Take, Welcome
from tandemq.replication.decisions import Close
from tandemq.replication.following.core import SlavePhase


def waiting() -> Slave:
    slave = Slave()
    slave.challenge(4, "e4")
    slave.feed(Welcome(A, False, 4, "e4", 0, 500, 0, [], [], []))
    return slave


def test_what_is_asked_back_leaves_in_batches_of_one_epoch() -> None:
    slave = waiting()
    slave.feed(Take(4, 300, 1000))
    assert slave.state.phase is SlavePhase.DONATING
    donating, ranges = slave.state.donating, list[tuple[int, int]]()
    while (batch := donating.next_batch()) is not None:
        ranges.append((batch.offset, batch.size_max))
        donating.sent(batch.offset + batch.size_max, 0.0)
    assert ranges == [(300, 100), (400, 600)], "epoch 3 begins at 400"


def test_the_header_names_the_epoch_of_its_bytes() -> None:
    slave = waiting()
    slave.feed(Take(4, 300, 1000))
    reader, body = ha.SessionReader(), b"x" * 100
    head, chunk = reader.feed(slave.state.donating.frame_header(body) + body)
    assert isinstance(head, Head)
    assert (head.epoch, head.offset, head.size) == (1, 300, 100)
    assert isinstance(chunk, Chunk)
    assert reader.sound


def test_what_this_log_does_not_hold_or_another_master_asks_for_is_refused() -> None:
    for take in (Take(4, 500, 1001), Take(5, 500, 1000)):
        out = waiting().feed(take)
        assert [one.reason for one in out if isinstance(one, Close)] == [Reason.OFFSET_GONE]


def test_nothing_is_given_before_it_is_asked_for() -> None:
    assert waiting().state.donating.next_batch() is None
