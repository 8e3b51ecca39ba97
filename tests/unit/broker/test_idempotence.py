"""The table of producers: what is new, repeated or a gap; read off the log on every replica alike."""

import random

import pytest

from tandemq.broker.idempotence import Claim, Idempotence, Known, Message, RepeatCheck, parse_claim, sequence_of
from tandemq.formats.crc import crc32
from tandemq.formats.record import CRC_MASK, encode_record
from tandemq.model.message import encode_properties

P, Q = "a" * 20, "b" * 20
SEGMENT = 4096
ROW = 1 << 32
"""Sequence of row 0 of micro-batch 1."""
CRC = crc32(b"x") & CRC_MASK


def claim(producer: str, first: int, messages: int, before: int | None = None, since_ms: int = 0) -> Claim:
    """A claim without gaps."""
    return Claim(producer, before, first, first + messages - 1, messages, since_ms)


def stored(table: Idempotence, made: Claim, end: int = 1000, body_crc: int = CRC) -> None:
    table.appended(made.producer, Known(made.last, end, 7, 50, body_crc))


def checked(
    table: Idempotence, made: Claim, sequences: list[int] | None = None, body_crc: int | None = CRC
) -> RepeatCheck:
    sequences = sequences or list(range(made.first, made.last + 1))
    return table.check(made, lambda: [Message(sequence, body_crc) for sequence in sequences])


def stored_ms(sequence: int) -> int:
    return 1_700_000_000_000 + sequence


def record(offset: int, producer: str, sequence: int, body: bytes = b"x") -> bytes:
    return encode_record(
        topic="t", queue_id=0, queue_offset=0, physical_offset=offset, born_timestamp=0, born_host=bytes(8),
        store_timestamp=stored_ms(sequence), store_host=bytes(8), body=body,
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
    """The four answers, where sequences have no gaps."""
    table = Idempotence()
    assert checked(table, claim(P, 0, 10)) == (0, None, "", False)
    stored(table, claim(P, 0, 10))
    assert checked(table, claim(P, 0, 10)).skip == 10
    assert checked(table, claim(P, 5, 10, before=4)).skip == 5
    assert checked(table, claim(P, 10, 1, before=9)) == (0, table.known(P), "", False)
    assert "goes on at c after b, but the last one stored is 9" in checked(table, claim(P, 12, 1, before=11)).problem
    assert checked(table, claim(P, ROW, 3)).problem == ""
    assert "none of its messages is stored" in checked(table, claim(Q, 7, 1, before=6)).problem


def test_rows_of_other_queues_leave_gaps_in_the_sequences() -> None:
    """What is stored of a send is told by the sequences of its messages, however the sends were divided."""
    table = Idempotence()
    first = Claim(P, None, 0, 8, 3)  # rows 0, 4, 8
    assert checked(table, first).skip == 0
    stored(table, first)
    assert checked(table, Claim(P, None, 0, 16, 5), [0, 4, 8, 12, 16]).skip == 3
    assert checked(table, Claim(P, 8, 12, 16, 2)).problem == ""
    gap = checked(table, Claim(P, 12, 16, 20, 2))
    assert "goes on at 10 after c, but the last one stored is 8" in gap.problem
    assert not gap.is_final


def test_other_rows_than_the_first_time_are_refused_for_good() -> None:
    """A producer that begins its micro-batch again, further on, does not repeat what it wrote."""
    table = Idempotence()
    stored(table, claim(P, ROW, 3))
    answer = checked(table, claim(P, ROW + 8, 1))
    assert "begins micro-batch 1 at 100000008, but stored its message 100000002 before" in answer.problem
    assert answer.is_final


def test_another_body_under_the_same_key_is_refused_for_good() -> None:
    """Seen at the last message stored, before anything is added after it; compressed bodies are not compared."""
    table = Idempotence()
    stored(table, claim(P, 0, 4))
    for repeat in (claim(P, 0, 4), claim(P, 0, 10), claim(P, 3, 1, before=2)):
        answer = checked(table, repeat, body_crc=CRC + 1)
        assert "message 3 of producer" in answer.problem
        assert answer.is_final
        assert checked(table, repeat, body_crc=None).problem == ""
    assert checked(table, claim(P, 0, 2), body_crc=CRC + 1).skip == 2
    assert checked(table, claim(P, 0, 4)._replace(keeps=True), body_crc=CRC + 1).skip == 4


def test_an_older_micro_batch_is_repeated_for_good() -> None:
    """A zombie task that comes late finds everything written."""
    table = Idempotence()
    stored(table, claim(P, 5 * ROW, 3))
    assert checked(table, claim(P, 4 * ROW, 1000)).skip == 1000


def test_a_repeat_names_the_place_of_the_last_message() -> None:
    """So that a sender can read what was stored under its name, on every replica alike."""
    table = Idempotence()
    stored(table, claim(P, 0, 1))
    known = checked(table, claim(P, 0, 1)).known
    assert known == Known(0, 1000, 7, 50, CRC)
    log = make_log([(P, 3)])
    scanned = Idempotence()
    scan(scanned, log)
    assert scanned.known(P) == Known(3, len(log), 0, stored_ms(3), CRC)


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
    table.truncate(0)
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
    assert known[:2] == (7, int.from_bytes(log[:4], "big"))


def test_appends_count_before_they_are_read_off_the_log_and_not_twice() -> None:
    """Recent knowledge moves into the settled one as the scan passes."""
    log = make_log([(P, 0), (P, 1)])
    table = Idempotence()
    stored(table, claim(P, 0, 2), len(log))
    assert checked(table, claim(P, 0, 2)).skip == 2
    scan(table, log)
    assert checked(table, claim(P, 0, 2)).skip == 2
    assert table.snapshot()["producers"] == {P: ["1", len(log), 0, stored_ms(1), CRC]}


def test_a_cut_forgets_what_was_not_settled() -> None:
    """Records that a truncation removed are new again; a partly kept batch is completed."""
    log = make_log([(P, 0), (P, 1)])
    table = Idempotence()
    scan(table, log)
    stored(table, claim(P, 2, 5), len(log) + 500)
    table.truncate(len(log))
    assert checked(table, claim(P, 1, 3)).skip == 1


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


def test_what_is_no_longer_in_the_log_is_forgotten() -> None:
    """A write that began before that can't be told from its repeat, so it is refused; a later one is new."""
    log = make_log([(P, 0), (Q, 1)])
    table = Idempotence()
    scan(table, log)
    table.forget_before(int.from_bytes(log[:4], "big"))
    assert sorted(table.snapshot()["producers"]) == [Q]
    refused = checked(table, claim(P, 0, 1, since_ms=stored_ms(0)))
    assert "no longer remembered" in refused.problem
    assert refused.is_final
    assert checked(table, claim(P, 0, 1, since_ms=stored_ms(0) + 1)).problem == ""
    assert checked(table, claim(P, 0, 1)).problem == ""


def test_a_replica_that_got_only_the_end_of_a_log_forgets_as_much() -> None:
    """The first record that is there says when the deleted ones were stored at the latest."""
    log = make_log([(P, 0)] * 40)
    table = Idempotence()
    first = SEGMENT
    while (window := table.window(first, len(log), SEGMENT)) is not None:
        table.passed(window, log[window.start : window.stop])
    assert table.forgotten_ms == stored_ms(0)
    again = Idempotence()
    again.load(table.snapshot(), first, len(log))
    assert again.forgotten_ms == table.forgotten_ms


def test_the_oldest_producer_that_is_pushed_out_is_forgotten_too() -> None:
    """The bound in bytes works like the bound in time."""
    table = Idempotence(producers_max=1)
    scan(table, make_log([(P, 4), (Q, 5)]))
    assert checked(table, claim(P, 4, 1, since_ms=stored_ms(4))).is_final


def test_the_sequence_of_a_message_is_in_its_key() -> None:
    """A message of another producer has none."""
    properties = f"UNIQ_KEY\x01TQ!{P}{255:016x}\x02TAGS\x01a\x02".encode()
    assert sequence_of(properties, P) == 255
    assert sequence_of(properties, Q) is None
    assert sequence_of(b"TAGS\x01a\x02", P) is None


@pytest.mark.parametrize(
    "text",
    [
        "", "x", f"{P}:0:1", f"{P}:-:0:0:0:0", f"{P}:-:zz:1:1:0", f"{P}:-:0:1:2", f"{'a' * 19}:-:0:0:1:0",
        f"{P}:-:0:1:3:0", f"{P}:5:5:6:2:0", f"{P}:-:ffffffff:100000000:2:0",
    ],
)  # fmt: skip
def test_a_malformed_claim_is_none(text: str) -> None:
    """The handler refuses it by name."""
    assert parse_claim(text) is None


def test_claims_are_read() -> None:
    """With and without a message before them."""
    assert parse_claim(f"{P}:-:1f:20:2:99") == Claim(P, None, 0x1F, 0x20, 2, 99)
    assert parse_claim(f"{P}:1e:1f:1f:1:0") == Claim(P, 0x1E, 0x1F, 0x1F, 1, 0)
    assert parse_claim(f"{P}:-:0:0:1:0:keep") == Claim(P, None, 0, 0, 1, 0, keeps=True)
