"""The data frame that a slave is receiving."""

from tandemq.codec.ha_classic import encode_transfer_header
from tandemq.replication.classic_slave_state import ClassicSlaveState
from tandemq.replication.decisions import Append, Commit, LogEnds
from tandemq.replication.following.core import SlaveTerms


def receiving(data: bytes) -> ClassicSlaveState:
    state = ClassicSlaveState(log=LogEnds(0, 0, 0, 4096), terms=SlaveTerms("g"), now=0.0)
    state.connected(1, 0.0)
    state.receive(data, 0.0)
    return state


def test_a_frame_without_a_byte_of_log_yet_may_be_received_straight_into_the_log() -> None:
    state = receiving(encode_transfer_header(0, 10))
    assert (state.missing, state.window, state.has_pending) == (10, 10, False)
    assert Commit(10) in state.took(memoryview(bytes(10)), 0.0)
    assert (state.log.end, state.taken) == (10, 0)


def test_what_came_in_a_buffer_is_moved_into_the_window_before_the_rest() -> None:
    state = receiving(encode_transfer_header(0, 10) + b"abc")
    assert (state.window, state.has_pending) == (0, True)
    assert state.pending_to_window() == b"abc"
    assert (state.taken, state.window) == (3, 7)


def test_a_frame_cut_off_by_the_end_of_the_connection_leaves_nothing_behind() -> None:
    state = receiving(encode_transfer_header(0, 10) + b"abc")
    state.disconnected(0.0)
    assert (state.missing, state.taken, state.has_pending) == (0, 0, False)
    state.connected(2, 0.0)
    assert Append(0, b"x") in state.receive(encode_transfer_header(0, 1) + b"x", 0.0)
