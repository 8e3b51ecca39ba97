"""Which messages a producer has written already: how a repeated send is recognised and not stored twice. Pure.

A producer that wants this (the Spark sink) writes one queue, numbers its messages and puts both into every message:

    UNIQ_KEY = "TQ!" + producer (20 hex digits) + sequence (16 hex digits: micro-batch << 32 | row)

and says in the properties of the send, `__TQ_IDEMPOTENT = producer:first sequence:messages`, that it wants to be
checked. The table keeps the last sequence of each producer. The log is the truth: the table is read off it
(`catch_up`), so it survives crashes, is the same on every replica and needs no protocol of its own;
`config/idempotence.json` is a snapshot that only makes starting faster. A send is

    new        the first row of a micro-batch, or the next one of the current; appended
    repeated   wholly or partly written before: only what is missing is appended, and the answer waits for the copies
               of the old records as it would for new ones
    gap        rows before it are missing: refused, the sender must begin again with those

`settled` comes from the readable log (it can't be cut off any more), `recent` from appends of this master that are not
settled yet. `catch_up` moves on; a cut of the log drops what was recent.
"""

import re
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tandemq.codec.record import MAGIC_BLANK, tail_bounds, walk

IDEMPOTENT = "__TQ_IDEMPOTENT"
PRODUCERS_MAX = 100_000
"""Producers remembered, the least recently seen forgotten first: about 30 MB. A streaming sink has one per task
and queue.
"""
ROW_MASK = 0xFFFFFFFF
SNAPSHOT_VERSION = 1

_KEY_START = b"UNIQ_KEY\x01TQ!"
_KEY = re.compile(_KEY_START + rb"([0-9a-f]{20})([0-9a-f]{16})\x02")
_CLAIM = re.compile(r"([0-9a-f]{20}):([0-9a-f]{1,16}):([0-9]{1,6})")
_WINDOW = 1024 * 1024
"""Scanned in one go: about half a millisecond of the loop."""


class Claim(NamedTuple):
    """What a send says about itself."""

    producer: str
    first: int
    messages: int

    @property
    def last(self) -> int:
        return self.first + self.messages - 1

    @property
    def begins_batch(self) -> bool:
        return self.first & ROW_MASK == 0


class Known(NamedTuple):
    """The last message of a producer: its sequence and where its record ends in the log."""

    sequence: int
    end: int


class Verdict(NamedTuple):
    """What to do with a send: leave out the first `skip` messages; `gap` says why it is refused instead."""

    skip: int
    known: Known | None
    gap: str = ""


def parse_claim(text: str) -> Claim | None:
    """The claim in a send's property; None if it is malformed."""
    match = _CLAIM.fullmatch(text)
    return Claim(match[1], int(match[2], 16), int(match[3])) if match and int(match[3]) else None


class Idempotence:
    """Last sequence per producer."""

    def __init__(self, producers_max: int = PRODUCERS_MAX) -> None:
        self._producers_max = producers_max
        self._settled: OrderedDict[str, Known] = OrderedDict()
        self._recent: dict[str, Known] = {}
        self.scanned = 0
        """The settled part is complete for all records below this offset; a record boundary."""
        self.horizon = 0
        """Nothing can be judged before the log was scanned up to here: where it ended when this node began to write."""

    @property
    def is_ready(self) -> bool:
        return self.scanned >= self.horizon

    def known(self, producer: str) -> Known | None:
        recent, settled = self._recent.get(producer), self._settled.get(producer)
        if recent is None or (settled is not None and settled.sequence > recent.sequence):
            return settled
        return recent

    def check(self, claim: Claim) -> Verdict:
        """Judges a send; the caller appends what is new and tells `appended`."""
        known = self.known(claim.producer)
        if known is None:
            if claim.begins_batch:
                return Verdict(0, None)
            return Verdict(0, None, f"producer {claim.producer} begins at {claim.first:x}, its start was never stored")
        if known.sequence >= claim.first:
            return Verdict(min(claim.messages, known.sequence - claim.first + 1), known)
        if claim.begins_batch or known.sequence == claim.first - 1:
            return Verdict(0, known)
        return Verdict(
            0,
            known,
            f"producer {claim.producer} goes on at {claim.first:x}, stored are its messages to {known.sequence:x}",
        )

    def appended(self, claim: Claim, end: int) -> None:
        """The whole claim is in the log now, its last record ends at `end`."""
        known = self._recent.get(claim.producer)
        if known is None or claim.last > known.sequence:
            self._recent[claim.producer] = Known(claim.last, end)

    # -- reading it off the log ---------------------------------------------------------------------------------------

    def catch_up(self, first: int, limit: int, segment_size: int, read: Callable[[int, int], memoryview]) -> bool:
        """Scans up to one window further towards `limit` (both record boundaries); True when it got there.

        `read(offset, size)` gives log bytes that lie in one segment. A window without any key is passed without
        looking at its records, which is nearly free; that needs windows that end at a boundary.
        """
        if self.scanned < first:
            self.scanned = first
        if self.scanned >= limit:
            return True
        segment_end = self.scanned - self.scanned % segment_size + segment_size
        whole = min(limit, segment_end)
        stop = min(whole, self.scanned + _WINDOW)
        data = read(self.scanned, stop - self.scanned)
        if stop == whole and _KEY.search(data) is None:
            self.scanned = stop
        else:
            self.scanned = self._scan_records(data, stop == whole, stop)
        self._forget_settled()
        return self.scanned >= limit

    def _scan_records(self, data: memoryview, is_whole: bool, stop: int) -> int:
        starts, position = [], 0
        for at, size, magic in walk(data, 0, len(data)):
            position = at + size
            if magic == MAGIC_BLANK:
                break
            starts.append(at)
        if not self._settle_newest(data, starts, position):
            self._settle_each(data, starts)
        # A last record cut off by the window is read with the next one; what is no record ends the segment.
        return stop if is_whole or not position else self.scanned + position

    def _settle_newest(self, data: memoryview, starts: list[int], stop: int) -> bool:
        """Finds the keys without looking at records, then only the records of each producer's newest key: in a third
        of the time. False, and nothing done, if one of these is no key: its text stands elsewhere, say in a body.
        """
        text = data[:stop].tobytes()
        newest: dict[bytes, tuple[bytes, int]] = {}
        at = text.find(_KEY_START)
        while at >= 0:
            producer_at = at + len(_KEY_START)
            sequence_at = producer_at + 20
            producer, sequence = text[producer_at:sequence_at], text[sequence_at : sequence_at + 16]
            known = newest.get(producer)
            if known is None or sequence > known[0]:
                newest[producer] = (sequence, at)
            at = text.find(_KEY_START, sequence_at)
        ends: list[tuple[str, int, int]] = []
        for _, at in newest.values():
            record = bisect_right(starts, at) - 1
            match = _KEY.match(text, at)
            if match is None or record < 0:
                return False
            _, _, start, end = tail_bounds(data, starts[record])
            if not start <= at < match.end() <= end:
                return False
            ends.append((match[1].decode(), int(match[2], 16), self.scanned + end))
        for producer_name, number, end in ends:
            self._settle(producer_name, number, end)
        return True

    def _settle_each(self, data: memoryview, starts: list[int]) -> None:
        for at in starts:
            _, _, start, end = tail_bounds(data, at)
            match = _KEY.search(data[start:end])
            if match is not None:
                self._settle(match[1].decode(), int(match[2], 16), self.scanned + end)

    def _settle(self, producer: str, sequence: int, end: int) -> None:
        known = self._settled.get(producer)
        if known is None or sequence > known.sequence:
            self._settled[producer] = Known(sequence, end)
        self._settled.move_to_end(producer)
        while len(self._settled) > self._producers_max:
            self._settled.popitem(last=False)

    def settle(self, dispatched: int) -> None:
        """On a master that is ready nothing needs to be scanned: every checked append since the horizon is in
        `recent`.
        """
        if not self.is_ready or dispatched <= self.scanned:
            return
        for producer, known in self._recent.items():
            if known.end <= dispatched:
                self._settle(producer, known.sequence, known.end)
        self.scanned = dispatched
        self._forget_settled()

    def _forget_settled(self) -> None:
        """What the scan has passed is no longer recent."""
        passed = [producer for producer, known in self._recent.items() if known.end <= self.scanned]
        for producer in passed:
            del self._recent[producer]

    def cut(self, offset: int) -> None:
        """The log was truncated to `offset`, or this node began to follow another: what was recent may be gone."""
        self._recent.clear()
        if self.scanned > offset:
            # Settled records were readable, so a cut never reaches them; a log that was replaced is read afresh.
            self._settled.clear()
            self.scanned = 0

    def begin_writing(self, end: int) -> None:
        """This node becomes the master of a log that ends at `end`."""
        self.cut(end)
        self.horizon = end

    # -- snapshot -----------------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        producers = {producer: [f"{known.sequence:x}", known.end] for producer, known in self._settled.items()}
        return {"version": SNAPSHOT_VERSION, "scanned": self.scanned, "producers": producers}

    def load(self, snapshot: Mapping[str, Any], first: int, limit: int) -> None:
        """Takes a snapshot over if it fits the log [first, limit); otherwise everything is read off the log again."""
        scanned = snapshot.get("scanned")
        if snapshot.get("version") != SNAPSHOT_VERSION or not isinstance(scanned, int) or not first <= scanned <= limit:
            return
        self.scanned = scanned
        for producer, (sequence, end) in dict(snapshot.get("producers", {})).items():
            self._settled[str(producer)] = Known(int(sequence, 16), int(end))
