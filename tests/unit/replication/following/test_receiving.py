"""Receiving: what a frame of log bytes comes to, however it arrives."""

from tests.unit.replication.slaves import Slave, following, kinds, sent

from tandemq.codec import ha_session as ha
from tandemq.codec.ha_reasons import Reason
from tandemq.replication.decisions import Append, Close, Commit, Confirm, Discard, FlushSoon


def frame(offset: int, body: bytes, *, flush: bool = False, lone: bool = False) -> bytes:
    return ha.encode_data_header(4, offset, 0, body, flush, lone) + body


def test_a_frame_that_came_whole_is_appended_from_the_buffer_it_came_in() -> None:
    slave = following()
    out = slave.state.receive(frame(1000, b"abcd"), 0.0)
    append = next(one for one in out if isinstance(one, Append))
    assert isinstance(append.data, memoryview)
    assert bytes(append.data) == b"abcd"


def test_a_frame_in_two_parts_is_appended_when_it_is_whole() -> None:
    slave, whole = following(), frame(1000, b"abcd")
    assert kinds(slave.state.receive(whole[:-2], 0.0), Append, ha.Ack) == []
    out = slave.state.receive(whole[-2:], 0.0)
    assert [bytes(one.data) for one in out if isinstance(one, Append)] == [b"abcd"]


def test_what_was_received_into_the_log_is_committed_not_appended() -> None:
    slave, body = following(), bytes(1000)
    whole = frame(1000, body)
    slave.state.receive(whole[:-1000], 0.0)
    assert (slave.state.frame.window, slave.state.frame.taken) == (1000, 0)
    assert slave.state.frame.took(memoryview(body)[:600], 0.0) == []
    out = slave.state.frame.took(memoryview(body)[600:], 0.0)
    assert kinds(out, Append, Commit, ha.Ack) == [Commit, ha.Ack]
    assert (slave.state.log.end, slave.state.frame.taken) == (2000, 0)


def test_damage_in_what_was_received_into_the_log_is_wiped_before_the_session_ends() -> None:
    slave, body = following(), bytes(1000)
    slave.state.receive(frame(1000, b"x" + body[1:])[:-1000], 0.0)
    out = slave.state.frame.took(memoryview(body), 0.0)
    assert [type(one) for one in out if isinstance(one, Discard | Close)] == [Discard, Close]
    assert slave.state.log.end == 1000
    assert slave.state.frame.window == 0, "nothing of it is left to receive"


def test_bytes_that_do_not_continue_the_log_or_are_of_a_newer_epoch_end_the_session() -> None:
    for slave, epoch, offset in ((following(), 4, 900), (following(), 5, 1000)):
        out = slave.data(offset, 10, epoch=epoch)
        assert [one.reason for one in out if isinstance(one, Close)] == [Reason.CORRUPT]


def test_several_frames_are_acknowledged_once_and_the_same_is_not_said_again() -> None:
    slave = following()
    out = slave.state.receive(frame(1000, b"ab") + frame(1002, b"cd"), 0.0)
    (ack,) = sent(out)
    assert isinstance(ack, ha.Ack)
    assert ack.received == 1004
    assert slave.state.flushed(600, 0.0) == [], "that was said with START"


def test_a_send_that_waits_for_the_disk_is_synced_at_once_and_a_lone_one_is_known() -> None:
    slave = following()
    out = slave.state.receive(frame(1000, b"ab", flush=True, lone=True), 0.0)
    assert kinds(out, Append, FlushSoon) == [Append, FlushSoon]
    assert slave.state.frame.is_lone
    slave.state.receive(ha.encode_data_header(4, 1002, 0, b""), 0.0)
    assert not slave.state.frame.is_lone, "a heartbeat: nobody waits"


def test_a_frame_without_bytes_only_confirms() -> None:
    slave = following()
    out = slave.state.receive(ha.encode_data_header(4, 1000, 700, b""), 0.0)
    assert out == [Confirm(700)]


def test_it_catches_up_until_it_has_what_the_master_had() -> None:
    slave = Slave()
    slave.challenge(4, "e4")
    slave.welcome(1200, *(ha.EpochItem(1, "e1", 0), ha.EpochItem(3, "e3", 400), ha.EpochItem(4, "e4", 1200)))
    assert slave.state.frame.is_catching_up
    slave.data(1000, 200, epoch=3)
    assert not slave.state.frame.is_catching_up
