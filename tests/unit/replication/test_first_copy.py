"""Where a slave of a RocketMQ master begins."""

import pytest

from tandemq.codec.ha_classic import OBSERVER_REPORT
from tandemq.codec.ha_reasons import Reason
from tandemq.formats.record import encode_record
from tandemq.replication.classic_slave_state import ClassicSlaveState
from tandemq.replication.decisions import Append, Confirm, LogEnds, Note, Reset, Send
from tandemq.replication.first_copy import (
    Compared,
    CopyProgress,
    MasterLog,
    Step,
    lacking,
    plan_first_copy,
    wrong_first_record,
)
from tandemq.replication.following.core import SlaveTerms

SIZE = 4096


def log(first: int, end: int) -> LogEnds:
    return LogEnds(first, end, end, SIZE)


@pytest.mark.parametrize(
    ("own", "master", "last_file_only", "step"),
    [
        (log(0, 0), MasterLog(0, 0, SIZE), False, Step.GO_ON),
        (log(0, 0), MasterLog(0, 9000, SIZE), False, Step.FETCH_FIRST_RECORD),
        (log(0, 0), MasterLog(0, 100), False, Step.FETCH_FIRST_RECORD),
        (log(0, 0), MasterLog(0, 9000, SIZE), True, Step.GO_ON),
        (log(0, 0), MasterLog(SIZE, 9000, SIZE), False, Step.BEGIN_AT_FIRST),
        (log(0, 0), MasterLog(SIZE, 9000, SIZE), True, Step.GO_ON),
        (log(SIZE, SIZE), MasterLog(SIZE, 9000, SIZE), False, Step.GO_ON),
        (log(SIZE, SIZE), MasterLog(2 * SIZE, 9000, SIZE), False, Step.BEGIN_AT_FIRST),
        (log(0, 100), MasterLog(0, 9000, SIZE), False, Step.GO_ON),
        (log(0, 100), MasterLog(SIZE, 9000, SIZE), True, Step.BEGIN_AT_FIRST),
        (log(0, 9001), MasterLog(0, 9000, SIZE), False, Step.REFUSE),
        (log(0, 0), MasterLog(0, 9000, 2 * SIZE), False, Step.REFUSE),
    ],
)
def test_what_is_done_first(own: LogEnds, master: MasterLog, last_file_only: bool, step: Step) -> None:
    assert plan_first_copy(own, master, last_file_only=last_file_only).step is step


def test_a_refusal_says_what_is_wrong_in_numbers() -> None:
    size = plan_first_copy(log(0, 0), MasterLog(0, 9000, 2 * SIZE))
    assert size.reason is Reason.SEGMENT_SIZE
    assert "mappedFileSizeCommitLog=8192" in size.text
    ahead = plan_first_copy(log(0, 9001), MasterLog(0, 9000, SIZE))
    assert ahead.reason is Reason.AHEAD
    assert "9001" in ahead.text
    assert "9000" in ahead.text


def record(physical_offset: int) -> bytes:
    return encode_record(
        topic="t",
        queue_id=0,
        queue_offset=0,
        physical_offset=physical_offset,
        born_timestamp=1,
        born_host=bytes(8),
        store_timestamp=1,
        store_host=bytes(8),
        body=b"hello",
    )


def test_only_the_record_at_offset_zero_is_taken_for_the_first() -> None:
    whole = record(0)
    assert wrong_first_record(whole) == ""
    assert "offset 77" in wrong_first_record(record(77))
    assert "came" in wrong_first_record(whole + b"x")
    assert "no record" in wrong_first_record(b"")
    damaged = bytearray(whole)
    damaged[whole.index(b"hello")] ^= 1
    assert "CRC" in wrong_first_record(bytes(damaged))


def test_progress_tells_lag_in_bytes_and_time_and_how_long_the_rest_will_take() -> None:
    progress = CopyProgress()
    assert (progress.lag_bytes, progress.lag_ms(0.0), progress.seconds_left) == (0, 0, None)
    progress.note(10.0, log(0, 0), MasterLog(0, 1000))
    assert (progress.lag_bytes, progress.seconds_left) == (1000, None)
    progress.note(12.0, log(0, 400), MasterLog(0, 1100))
    assert (progress.lag_bytes, progress.lag_ms(12.0), progress.seconds_left) == (700, 2000, 3.5)
    progress.note(14.0, log(0, 1100), MasterLog(0, 1100))
    assert (progress.lag_bytes, progress.lag_ms(99.0), progress.seconds_left) == (0, 0, 0.0)
    progress.note(20.0, log(0, 1100), MasterLog(0, 1200))
    assert progress.lag_ms(21.0) == 7000, "behind since it last had everything"


def test_only_a_copy_of_the_last_file_lacks_history_until_the_master_has_dropped_it_too() -> None:
    assert lacking(2 * SIZE, SIZE, None, last_file_only=True) == (SIZE, 2 * SIZE)
    assert lacking(2 * SIZE, SIZE, (0, 2 * SIZE), last_file_only=False) == (SIZE, 2 * SIZE), "still so after a restart"
    assert lacking(2 * SIZE, SIZE, None, last_file_only=False) is None, "its own retention ran first"
    assert lacking(2 * SIZE, 2 * SIZE, (SIZE, 2 * SIZE), last_file_only=True) is None


def test_the_store_of_a_rocketmq_slave_lacks_what_that_slave_never_copied() -> None:
    """RocketMQ sends an empty slave its last file; what retention takes later is no lack."""
    assert lacking(2 * SIZE, SIZE, None, last_file_only=False, is_first_contact=True) == (SIZE, 2 * SIZE)
    progress = CopyProgress()
    progress.begins(log(2 * SIZE, 3 * SIZE), MasterLog(0, 3 * SIZE), last_file_only=False)
    assert progress.compared == Compared((0, 2 * SIZE), 0)
    whole = CopyProgress()
    whole.begins(log(0, 2 * SIZE), MasterLog(0, 2 * SIZE), last_file_only=False)
    whole.note(1.0, log(SIZE, 3 * SIZE), MasterLog(0, 3 * SIZE))
    assert whole.compared == Compared(None, 0), "its own retention ran first"


def test_a_copy_remembers_how_far_it_has_to_come() -> None:
    progress = CopyProgress()
    progress.begins(log(0, 0), MasterLog(0, 1000), last_file_only=False)
    assert progress.known_end() == 1000
    progress.note(1.0, log(0, 400), MasterLog(0, 1100))
    assert (progress.known_end(), progress.compared.goal) == (1100, 1000), "only what a session began with is saved"
    again = CopyProgress(progress.compared)
    assert again.known_end() == 1000, "also when the master is gone"
    again.note(2.0, log(0, 1200), MasterLog(0, 1200))
    assert (again.known_end(), again.compared) == (1200, Compared(None, 0))


def classic(own: LogEnds) -> ClassicSlaveState:
    return ClassicSlaveState(log=own, terms=SlaveTerms("g"), now=0.0)


def test_it_reports_the_end_of_the_first_record_and_never_zero() -> None:
    state, first = classic(log(0, 0)), record(0)
    assert state.begin_with(first) == [Append(0, first), Confirm(len(first))]
    assert state.connected(1, 0.0) == [Send(1, len(first).to_bytes(8, "big"))]


def test_an_observer_tells_a_rocketmq_master_where_it_began_and_nothing_more() -> None:
    """Whatever is reported counts as a copy there, and an observer is none."""
    state = ClassicSlaveState(log=log(0, 100), terms=SlaveTerms("g", observer=True), now=0.0)
    began = Send(1, (100).to_bytes(8, "big"))
    far_below = Send(1, OBSERVER_REPORT.to_bytes(8, "big", signed=True))
    assert state.connected(1, 0.0) == [began]
    assert state.tick(5.0) == [began], "nothing came: it still says where to send from"
    frame = (100).to_bytes(8, "big") + (3).to_bytes(4, "big") + b"abc"
    assert [decision for decision in state.receive(frame, 6.0) if isinstance(decision, Send)] == [far_below]
    assert state.log.end == 103
    more = (103).to_bytes(8, "big") + (3).to_bytes(4, "big") + b"def"
    assert not [decision for decision in state.receive(more, 7.0) if isinstance(decision, Send)]
    assert state.tick(12.0) == [far_below], "RocketMQ 5 counts as in sync whoever reports an end near its own"


def test_a_log_that_begins_above_zero_is_begun_there() -> None:
    state = classic(log(0, 0))
    assert state.begin_at(SIZE) == [Reset(SIZE, 0, 0, "the log is empty", "reset-empty")]
    assert state.connected(1, 0.0) == [Send(1, SIZE.to_bytes(8, "big"))]


def test_a_slave_that_retention_has_overtaken_begins_anew_and_says_so() -> None:
    state = classic(log(0, 100))
    reset, note = state.begin_at(SIZE)
    assert isinstance(reset, Reset)
    assert (reset.offset, reset.event) == (SIZE, "reset-offset-gone")
    assert isinstance(note, Note)
    assert note.loud
