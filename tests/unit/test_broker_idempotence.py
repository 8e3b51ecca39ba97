"""The table of producers: what is new, repeated or a gap; read off the log on every replica alike."""

import random

import pytest

from tandemq.broker.idempotence import Claim, Idempotence, parse_claim
from tandemq.codec.record import encode_record
from tandemq.model.message import encode_properties

P, Q = "a" * 20, "b" * 20
SEGMENT = 4096


def record(offset: int, producer: str, sequence: int, body: bytes = b"x") -> bytes:
    return encode_record(
        topic="t", queue_id=0, queue_offset=0, physical_offset=offset, born_timestamp=0, born_host=bytes(8),
        store_timestamp=0, store_host=bytes(8), body=body,
        properties=encode_properties({"UNIQ_KEY": f"TQ!{producer}{sequence:016x}", "TAGS": "x"}) if producer else b"",
    )  # fmt: skip


def make_log(entries: list[tuple[str, int]], body: bytes = b"x") -> bytes:
    """A log of segments with blanks at their ends."""
    log = bytearray()
    for producer, sequence in entries:
        data = record(len(log), producer, sequence, body)
        left = SEGMENT - len(log) % SEGMENT
        if len(data) + 8 > left:
            log += left.to_bytes(4, "big") + bytes.fromhex("CBD43194") + bytes(left - 8)
            data = record(len(log), producer, sequence, body)
        log += data
    return bytes(log)


def scan(table: Idempotence, log: bytes, limit: int | None = None) -> None:
    limit = len(log) if limit is None else limit
    while (window := table.window(0, limit, SEGMENT)) is not None:
        table.passed(window, log[window.start : window.stop])


def test_new_repeated_partly_repeated_and_gap() -> None:
    """The four answers."""
    table = Idempotence()
    assert table.check(Claim(P, 0, 10)).skip == 0
    table.appended(Claim(P, 0, 10), 1000)
    assert table.check(Claim(P, 0, 10)).skip == 10
    assert table.check(Claim(P, 5, 10)).skip == 5
    assert table.check(Claim(P, 10, 1)) == (0, table.known(P), "")
    assert "goes on at c" in table.check(Claim(P, 12, 1)).gap
    assert table.check(Claim(P, 1 << 32, 3)).gap == ""
    assert "never stored" in table.check(Claim(Q, 7, 1)).gap


def test_an_older_micro_batch_is_repeated_for_good() -> None:
    """A zombie task that comes late finds everything written."""
    table = Idempotence()
    table.appended(Claim(P, 5 << 32, 3), 100)
    assert table.check(Claim(P, 4 << 32, 1000)).skip == 1000


def test_the_log_gives_the_same_table_on_every_replica() -> None:
    """Whatever the pieces in which it is read; messages without a key do not matter."""
    rng = random.Random(4)
    entries = [(rng.choice((P, Q, "")), n) for n in range(300)]
    log = make_log(entries)
    whole, stepwise = Idempotence(), Idempotence()
    scan(whole, log)
    boundaries = [0]
    at = 0
    while at < len(log):
        at += int.from_bytes(log[at : at + 4], "big")
        boundaries.append(at)
    for limit in [*boundaries[1::7], len(log)]:
        scan(stepwise, log, limit)
    assert whole.snapshot() == stepwise.snapshot()
    for producer in (P, Q):
        known = whole.known(producer)
        assert known is not None
        assert known.sequence == max(n for p, n in entries if p == producer)


@pytest.mark.parametrize("size", [50, 51, 64, 100, 333, 1000])
def test_windows_may_cut_records_and_keys_anywhere(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that two windows share counts, and so does one whose record begins long before its window."""
    entries = [(P, 1), ("", 0), (Q, 1), (P, 2), (Q, 2), ("", 0), (P, 3)] * 3
    log = make_log(entries, body=b"b" * 300)
    whole, pieces = Idempotence(), Idempotence()
    scan(whole, log)
    monkeypatch.setattr("tandemq.broker.idempotence._WINDOW", size)
    scan(pieces, log)
    assert pieces.snapshot() == whole.snapshot()
    assert set(pieces.snapshot()["producers"]) == {P, Q}


def test_a_log_that_was_cut_while_a_window_was_read_is_not_judged_by_it() -> None:
    """The bytes come from another thread, a moment later."""
    log = make_log([(P, 0), (P, 1)])
    table = Idempotence()
    window = table.window(0, len(log), SEGMENT)
    assert window is not None
    table.cut(0)
    table.passed(window, log)
    assert table.snapshot()["producers"] == {}
    scan(table, log)
    assert set(table.snapshot()["producers"]) == {P}


@pytest.mark.parametrize("producer", [P, Q])
def test_a_key_inside_a_body_does_not_count(producer: str) -> None:
    """Only properties do: bodies may hold anything, copies of a log too."""
    fake = f"UNIQ_KEY\x01TQ!{producer}{999:016x}\x02".encode()
    table = Idempotence()
    scan(table, make_log([(P, 1), (P, 2)], body=fake))
    assert table.snapshot()["producers"].keys() == {P}
    known = table.known(P)
    assert known is not None
    assert known.sequence == 2


def test_an_older_key_behind_a_newer_one_changes_nothing() -> None:
    """Sends that were not checked may be repeated later on."""
    table = Idempotence()
    log = make_log([(P, 7), (P, 5), (Q, 1), (P, 6)])
    scan(table, log)
    known = table.known(P)
    assert known is not None
    assert known == (7, int.from_bytes(log[:4], "big"))


def test_appends_count_before_they_are_read_off_the_log_and_not_twice() -> None:
    """Recent knowledge moves into the settled one as the scan passes."""
    log = make_log([(P, 0), (P, 1)])
    table = Idempotence()
    table.appended(Claim(P, 0, 2), len(log))
    assert table.check(Claim(P, 0, 2)).skip == 2
    scan(table, log)
    assert table.check(Claim(P, 0, 2)).skip == 2
    assert table.snapshot()["producers"] == {P: ["1", len(log)]}


def test_a_cut_forgets_what_was_not_settled() -> None:
    """Records that a truncation removed are new again; a partly kept batch is completed."""
    log = make_log([(P, 0), (P, 1)])
    table = Idempotence()
    scan(table, log)
    table.appended(Claim(P, 2, 5), len(log) + 500)
    table.cut(len(log))
    assert table.check(Claim(P, 1, 3)).skip == 1


def test_a_master_judges_only_after_it_has_read_its_log() -> None:
    """A promoted slave may hold records of a producer that its table has not met yet."""
    log = make_log([(P, 0)])
    table = Idempotence()
    table.begin_writing(len(log))
    assert not table.is_ready
    scan(table, log)
    assert table.is_ready


def test_a_snapshot_is_used_only_if_it_fits_the_log() -> None:
    """Otherwise the log is read from its beginning."""
    log = make_log([(P, 3)])
    table = Idempotence()
    scan(table, log)
    snapshot = table.snapshot()
    fits, cut_since, other = Idempotence(), Idempotence(), Idempotence()
    fits.load(snapshot, 0, len(log))
    assert fits.known(P) == table.known(P)
    cut_since.load(snapshot, 0, len(log) - 1)
    assert cut_since.scanned == 0
    other.load({"version": 9}, 0, 10)
    assert other.known(P) is None


def test_the_table_is_bounded() -> None:
    """The least recently seen producer goes first."""
    table = Idempotence(producers_max=3)
    scan(table, make_log([(f"{n:020x}", n) for n in range(10)]))
    assert sorted(table.snapshot()["producers"]) == [f"{n:020x}" for n in (7, 8, 9)]


@pytest.mark.parametrize("text", ["", "x", f"{P}:0:0", f"{P}:zz:1", f"{P}:0:1:2", f"{'a' * 19}:0:1"])
def test_a_malformed_claim_is_none(text: str) -> None:
    """The handler refuses it by name."""
    assert parse_claim(text) is None
    assert parse_claim(f"{P}:1f:20") == Claim(P, 0x1F, 20)
