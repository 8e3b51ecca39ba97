"""Which messages a producer has written already: how a repeated send is recognised and not stored twice. Pure.

A producer that wants this (the Spark sink) writes one queue, numbers its messages and puts both into every message:

    UNIQ_KEY = "TQ!" + producer (20 hex digits) + sequence (16 hex digits: micro-batch << 32 | row)

and says in the properties of the send, `__TQ_IDEMPOTENT = producer:first sequence:messages`, that it wants to be
checked. The table keeps the last sequence of each producer. The log is the truth: the table is read off it
(`window`, `passed`), so it survives crashes, is the same on every replica and needs no protocol of its own;
`config/idempotence.json` is a snapshot that only makes starting faster. A send is

    new        the first row of a micro-batch, or the next one of the current; appended
    repeated   wholly or partly written before: only what is missing is appended, and the answer waits for the copies
               of the old records as it would for new ones
    gap        rows before it are missing: refused, the sender must begin again with those

`settled` comes from the readable log (it can't be cut off any more), `recent` from appends of this master that are not
settled yet. The scan moves on; a cut of the log drops what was recent.
"""

import re
from collections import OrderedDict
from collections.abc import Mapping
from enum import Enum, auto
from typing import Any, NamedTuple

from tandemq.codec.record import FIXED_SIZE_V4, MAGIC_V1, MAGIC_V2, PHYSICAL_OFFSET_AT, tail_bounds

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
_KEY_SIZE = len(_KEY_START) + 20 + 16 + 1
_MAGIC_START = MAGIC_V1.to_bytes(4, "big")[:3]
_MAGIC_ENDS = {MAGIC_V1 & 0xFF, MAGIC_V2 & 0xFF}
"""The magics of both versions of a record: three bytes in common, then one of these."""
_WINDOW = 1024 * 1024
"""Scanned in one go: less than half a millisecond of the loop."""
_BEHIND_MAX = 64 << 20
"""No record is larger: what has no record's beginning that far before it is in none."""


class Window(NamedTuple):
    """Log bytes [start, stop) of one segment to look for keys in; whether a record begins and ends at its edges."""

    log: int
    """How often the log had been cut by then."""
    start: int
    stop: int
    starts_whole: bool
    stops_whole: bool


class Where(Enum):
    """Where a text that looks like a key stands, if not in the properties of a record in the window."""

    IN_NO_PROPERTIES = auto()
    BEFORE_THE_WINDOW = auto()
    """Its record begins there."""


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


def _record_before(data: bytes, at: int, base: int) -> int | None:
    """Where the record begins that is the last to begin before `at`: it has a magic and says where in the log it lies,
    which bytes of a body that look like a record can't."""
    position = at
    while position > 0:
        position = data.rfind(_MAGIC_START, 0, position)
        start = position - 4
        if start >= 0 and start + FIXED_SIZE_V4 <= len(data) and data[position + 3] in _MAGIC_ENDS:
            stated = int.from_bytes(data[start + PHYSICAL_OFFSET_AT : start + PHYSICAL_OFFSET_AT + 8], "big")
            if stated == base + start:
                return start
    return None


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
        """The settled part is complete for all records that end at or below this offset."""
        self._cuts = 0
        self._behind = 0
        """How far before `scanned` the next window begins."""
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

    def window(self, first: int, limit: int, segment_size: int) -> Window | None:
        """What to read next towards `limit`, a record boundary; None when everything below it was read."""
        if self.scanned < first:
            self.scanned = first
        if self.scanned >= limit:
            return None
        segment_start = self.scanned - self.scanned % segment_size
        whole = min(limit, segment_start + segment_size)
        stop = min(whole, self.scanned + _WINDOW)
        start = max(first, segment_start, self.scanned - self._behind)
        return Window(self._cuts, start, stop, starts_whole=start in (first, segment_start), stops_whole=stop == whole)

    def passed(self, window: Window, data: bytes) -> None:
        """The bytes of a window that `window` gave; nothing happens if the log was cut meanwhile."""
        if window.log != self._cuts or not window.start <= self.scanned < window.stop:
            return
        if not self._settle_newest(window, data):
            self._behind = self._behind * 2 or _WINDOW  # a key's record begins before the window: read that too
            return
        self._behind = 0
        # Without its last bytes a key is none: the next window begins with what may be the beginning of one.
        self.scanned = window.stop if window.stops_whole else window.stop - _KEY_SIZE
        self._forget_settled()

    def _settle_newest(self, window: Window, data: bytes) -> bool:
        """Finds the keys without looking at records, then only the records of each producer's newest key. False, and
        nothing done, if one of those begins before the window.
        """
        newest: dict[bytes, tuple[bytes, int]] = {}
        stop = len(data) - (_KEY_SIZE - len(_KEY_START))
        at = data.find(_KEY_START, 0, stop)
        while at >= 0:
            producer_at = at + len(_KEY_START)
            sequence_at = producer_at + 20
            producer, sequence = data[producer_at:sequence_at], data[sequence_at : sequence_at + 16]
            known = newest.get(producer)
            if known is None or sequence > known[0]:
                newest[producer] = (sequence, at)
            at = data.find(_KEY_START, sequence_at, stop)
        found = [self._numbered(window, data, at) for _, at in newest.values()]
        if any(one is Where.IN_NO_PROPERTIES for one in found):
            # The text of a key stands elsewhere too, say in a body: then each one is looked at.
            found = [self._numbered(window, data, match.start()) for match in _KEY.finditer(data)]
        if any(one is Where.BEFORE_THE_WINDOW for one in found):
            return False
        for one in found:
            if not isinstance(one, Where):
                self._settle(*one)
        return True

    def _numbered(self, window: Window, data: bytes, at: int) -> "tuple[str, int, int] | Where":
        """(producer, sequence, end of the record) of the key whose text is at this place."""
        match = _KEY.match(data, at)
        if match is None:
            return Where.IN_NO_PROPERTIES
        start = _record_before(data, at, window.start)
        if start is None:
            is_sure = window.starts_whole or self._behind >= _BEHIND_MAX
            return Where.IN_NO_PROPERTIES if is_sure else Where.BEFORE_THE_WINDOW
        _, _, properties_start, end = tail_bounds(data, start)
        if not properties_start <= at < match.end() <= end:
            return Where.IN_NO_PROPERTIES
        return match[1].decode(), int(match[2], 16), window.start + end

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
        self._cuts += 1
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
