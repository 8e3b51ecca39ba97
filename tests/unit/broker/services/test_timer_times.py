"""Times of timer messages, read without decoding them: what decoding says."""

from pathlib import Path

import pytest

from tandemq.broker.services import timer_times
from tandemq.broker.services.timer_copies import OUT_MS, RECALLED, ROLL_TIMES
from tandemq.broker.services.timer_heap import OFFSET_BITS
from tandemq.broker.services.timer_times import out_ms, times_in
from tandemq.broker.services.timers import ROLL_MS
from tandemq.formats.record import parse_record
from tandemq.model.message import encode_properties
from tandemq.model.topic import TIMER_TOPIC
from tandemq.sim.clock import ManualClock
from tandemq.sim.disk import MemoryDisk
from tandemq.store.config import StoreConfig
from tandemq.store.message_store import MessageStore
from tandemq.testing.broker_parts import HOST

NOW = ManualClock().wall_ms()
DUE = NOW + 5000
NAMED = b"\x02" + OUT_MS.encode() + b"\x01"
V6 = bytes(range(16)) + bytes((0, 0, 0, 9))


def _slices(*records: tuple[bytes, bytes, bytes]) -> list[memoryview]:
    """Stores (body, properties, born host) in the timers' queue, and reads them."""
    config = StoreConfig(commit_log_segment_size=1 << 16, index_enable=False)
    store = MessageStore.open(Path("/store"), config, clock=ManualClock(), disk=MemoryDisk(), store_host=HOST)
    for body, properties, host in records:
        store.append(TIMER_TOPIC, 0, 0, 0, 1, host, 0, 0, body, properties)
    store.dispatch()
    return store.reader.get(TIMER_TOPIC, 0, 0, 1000, 1 << 20).slices


def _waiting(found: list[memoryview]) -> list[int]:
    return times_in(found, wait_max_ms=ROLL_MS).waiting


def _properties(due: int = DUE, **others: str) -> bytes:
    return encode_properties({**others, OUT_MS: str(due), "REAL_TOPIC": "T"})


@pytest.mark.parametrize(
    ("body", "properties", "host"),
    [
        (b"x", _properties(), HOST),
        (b"", _properties(A="1", MY_TIMER_OUT_MS="7"), HOST),
        (b"1" + NAMED + b"77\x02", _properties(), HOST),
        (b"x", encode_properties({OUT_MS: str(DUE)}), HOST),
        (b"x", b"A\x011\x02TIMER_OUT_MS\x01%d" % DUE, HOST),
        (b"x", encode_properties({"A": "1", OUT_MS: str(DUE), "TIMER_OUT_MS2": "9"}), HOST),
        (b"x", _properties(), V6),
    ],
    ids=["plain", "alike", "in the body", "first", "last", "longer", "IPv6"],
)
def test_the_time_is_found(body: bytes, properties: bytes, host: bytes) -> None:
    [part] = _slices((body, properties, host))
    assert out_ms(parse_record(part)) == DUE
    assert _waiting([part]) == [DUE << OFFSET_BITS]


@pytest.mark.parametrize("properties", [b"", _properties()[:13], encode_properties({"A": "1", OUT_MS: "soon"})])
def test_what_says_no_time_is_left_out(properties: bytes) -> None:
    found = _slices((b"a" + NAMED + b"77\x02", properties, HOST), (b"x", _properties(), HOST))
    assert _waiting(found) == [(DUE << OFFSET_BITS) + 1]


def test_nobody_waits_longer_than_the_log_is_kept() -> None:
    found = _slices((b"x", _properties(NOW + 2 * ROLL_MS), HOST))
    assert _waiting(found) == [(NOW + ROLL_MS) << OFFSET_BITS]


def test_what_this_broker_wrote_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a start with a million timers takes ten seconds."""
    found = _slices((b"x", _properties(A="1"), HOST))
    monkeypatch.setattr(timer_times, "parse_record", None)
    assert _waiting(found) == [DUE << OFFSET_BITS]


def test_what_has_to_be_looked_at_whole_is_decoded() -> None:
    """Overdue messages, of which there may be copies, and those that say something about others."""
    past, again = _properties(NOW - 1), _properties(**{ROLL_TIMES: "1"})
    records = [(b"x", part, HOST) for part in (_properties(), past, again, _properties(**{RECALLED: "T+key"}), past)]
    times = times_in(_slices(*records), wait_max_ms=ROLL_MS, overdue_ms=NOW, is_settled=lambda offset, due: offset == 4)
    assert [one & 7 for one in times.waiting] == [0, 1, 2, 3]
    assert [(message.queue_offset, due) for message, due in times.overdue] == [(1, NOW - 1)]
    assert [message.queue_offset for message in times.marked] == [2, 3]
