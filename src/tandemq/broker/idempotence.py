"""Which messages a producer has stored already: how a repeated send is recognised and not stored twice. Pure.

A producer that wants this (the Spark sink) writes to one queue, numbers its messages and puts both into every message:

    UNIQ_KEY = "TQ!" + producer (20 hex digits) + sequence (16 hex digits: micro-batch << 32 | row)

Sequences rise but may have gaps, because the rows in between went to other queues. So each send also carries a claim,
the property `__TQ_IDEMPOTENT = producer:before:first:last:messages:since`: the sequence of the producer's message
before these in the same micro-batch (`-` if these are its first ones), their own first and last sequence, how many they
are, and when the write began (ms since 1970, 0 if unknown). With `:keep` at its end the claim asks for what is stored
under its key, whatever its body. A send is

    new        the first of its micro-batch, or it follows the last message that is stored; it is appended
    repeated   stored before, wholly or in part: only what is missing is appended, and the answer waits for the copies
               of the old records as it would for new ones
    refused    messages before it are missing; or the message that is stored under the same key has another body; or
               so much has been forgotten since the write began that a repeat would not be recognised

The log is the truth: the table is read off it (`window`, `passed`), so it survives crashes and promotions, is the same
on every replica and needs no protocol of its own. `config/idempotence.json` is a snapshot that only makes starting
faster. What is remembered is bounded by the log: a producer is forgotten when its last message is deleted from the log,
and when `PRODUCERS_MAX` others have written since. `forgotten_ms` says up to when that may have happened.

`settled` comes from the readable log, which can't be truncated any more; `recent` comes from appends of this master
that are not settled yet. A truncation of the log drops what was recent.
"""

import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from typing import Any, NamedTuple

from tandemq.formats.record import (
    CRC_AT,
    CRC_MASK,
    FIXED_SIZE_V4,
    MAGIC_V1,
    MAGIC_V2,
    PHYSICAL_OFFSET_AT,
    QUEUE_OFFSET_AT,
    SYS_FLAG_AT,
    Buffer,
    store_timestamp,
    tail_bounds,
)

IDEMPOTENT = "__TQ_IDEMPOTENT"
PRODUCERS_MAX = 100_000
"""Producers remembered, the least recently seen forgotten first: about 30 MB. A sink has one per task and queue."""
SNAPSHOT_VERSION = 2

_BATCH_BITS = 32
_KEY_START = b"UNIQ_KEY\x01TQ!"
_KEY = re.compile(_KEY_START + rb"([0-9a-f]{20})([0-9a-f]{16})\x02")
_CLAIM = re.compile(
    r"([0-9a-f]{20}):(-|[0-9a-f]{1,16}):([0-9a-f]{1,16}):([0-9a-f]{1,16}):([0-9]{1,6}):([0-9]{1,15})(:keep)?"
)
_KEY_SIZE = len(_KEY_START) + 20 + 16 + 1
_MAGIC_START = MAGIC_V1.to_bytes(4, "big")[:3]
_MAGIC_ENDS = {MAGIC_V1 & 0xFF, MAGIC_V2 & 0xFF}
"""The magics of both versions of a record: three bytes in common, then one of these."""
_WINDOW = 1024 * 1024
"""Bytes scanned at a time: less than half a millisecond of the loop."""
_LOOK_BACK_MAX = 64 << 20
"""No record is larger, so a key with no record's beginning that far before it is in no record."""


class Window(NamedTuple):
    """Log bytes [start, stop) of one segment to search for keys; whether a record begins and ends at its edges."""

    log: int
    """How often the log had been truncated by then."""
    start: int
    stop: int
    starts_whole: bool
    stops_whole: bool


class Where(Enum):
    """Where a text that looks like a key stands, if not in the properties of a record in the window."""

    IN_NO_PROPERTIES = auto()
    BEFORE_THE_WINDOW = auto()
    """Its record begins before the window."""


class Claim(NamedTuple):
    """What a send says about itself."""

    producer: str
    before: int | None
    """Sequence of the producer's previous message in the same micro-batch; None if these are its first ones."""
    first: int
    last: int
    messages: int
    since_ms: int = 0
    """When the write began; 0 if unknown."""
    keeps: bool = False
    """A message that is stored under the same key counts, whatever its body."""

    @property
    def batch(self) -> int:
        return self.first >> _BATCH_BITS


class Known(NamedTuple):
    """The last message of a producer."""

    sequence: int
    end: int
    """Where its record ends in the log."""
    queue_offset: int
    stored_ms: int
    body_crc: int
    """As in its record."""


class Message(NamedTuple):
    """One message of a send: its sequence, and the checksum that its body will have in the log."""

    sequence: int
    body_crc: int | None
    """None if it says nothing: another version of a compressor makes other bytes of the same body."""


class RepeatCheck(NamedTuple):
    """What to do with a send: leave out its first `skip` messages, or refuse it because of `problem`."""

    skip: int
    known: Known | None
    problem: str = ""
    is_final: bool = False
    """The problem stays, however often the send is tried again."""


def _record_before(data: bytes, at: int, base: int) -> int | None:
    """Returns where the last record before `at` begins, or None if the data has no such place.

    It has a magic and says where in the log it lies, which bytes of a body that only look like a record can't.
    """
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
    """Returns the claim in a send's property, or None if it is malformed."""
    match = _CLAIM.fullmatch(text)
    if match is None:
        return None
    before = None if match[2] == "-" else int(match[2], 16)
    first, last = int(match[3], 16), int(match[4], 16)
    claim = Claim(match[1], before, first, last, int(match[5]), int(match[6]), match[7] is not None)
    is_ordered = (before is None or before < claim.first) and claim.messages <= claim.last - claim.first + 1
    return claim if claim.messages and is_ordered and claim.last >> _BATCH_BITS == claim.batch else None


def sequence_of(properties: Buffer, producer: str) -> int | None:
    """Returns the sequence in a message's key, or None if the message has no key of this producer."""
    match = _KEY.search(bytes(properties))
    return int(match[2], 16) if match is not None and match[1].decode() == producer else None


class Idempotence:
    """The last message of every producer."""

    def __init__(self, producers_max: int = PRODUCERS_MAX) -> None:
        self._producers_max = producers_max
        self._settled: OrderedDict[str, Known] = OrderedDict()
        self._recent: dict[str, Known] = {}
        self.scanned = 0
        """The settled part is complete for all records that end at or below this offset."""
        self._truncations = 0
        self._look_back = 0
        """How far before `scanned` the next window begins."""
        self.horizon = 0
        """Where the log ended when this node began to write: nothing can be checked before it was scanned that far."""
        self.forgotten_ms = 0
        """Producers whose last message was stored at or before this time may have been forgotten."""
        self._begins_late = False
        """The log's beginning was deleted before it was scanned: the first record's time says how much is forgotten."""

    @property
    def is_ready(self) -> bool:
        return self.scanned >= self.horizon

    def known(self, producer: str) -> Known | None:
        recent, settled = self._recent.get(producer), self._settled.get(producer)
        if recent is None or (settled is not None and settled.sequence > recent.sequence):
            return settled
        return recent

    def check(self, claim: Claim, messages: Callable[[], Sequence[Message]]) -> RepeatCheck:
        """Returns what to do with a send; the caller appends what is new and then calls `appended`.

        `messages` gives the messages of the send; it is called only if the last one that is stored is among them.
        """
        known = self.known(claim.producer)
        if known is not None and known.sequence >= claim.first:
            return self._check_repeated(claim, known, messages)
        if claim.before is None:
            return self._check_first(claim, known)
        if known is not None and known.sequence == claim.before:
            return RepeatCheck(0, known)
        stored = "none of its messages is stored" if known is None else f"the last one stored is {known.sequence:x}"
        problem = f"producer {claim.producer} goes on at {claim.first:x} after {claim.before:x}, but {stored}"
        return RepeatCheck(0, known, problem)

    def _check_repeated(self, claim: Claim, known: Known, messages: Callable[[], Sequence[Message]]) -> RepeatCheck:
        """Checks messages of which some or all are stored."""
        if known.sequence > claim.last:
            return RepeatCheck(claim.messages, known)
        repeated = [message for message in messages() if message.sequence <= known.sequence]
        is_there = bool(repeated) and repeated[-1].sequence == known.sequence
        if is_there and (claim.keeps or repeated[-1].body_crc in (None, known.body_crc)):
            return RepeatCheck(len(repeated), known)
        problem = (
            f"message {known.sequence:x} of producer {claim.producer} is stored, but not as it is sent now: the rows "
            "are not the same, or not in the same order, as the first time"
        )
        return RepeatCheck(0, known, problem, is_final=True)

    def _check_first(self, claim: Claim, known: Known | None) -> RepeatCheck:
        """Checks the first messages of a micro-batch."""
        if known is None:
            if 0 < claim.since_ms <= self.forgotten_ms:
                return RepeatCheck(
                    0,
                    None,
                    f"the write began at {claim.since_ms}, but messages stored up to {self.forgotten_ms} are no longer "
                    "remembered, so a repeat would not be recognised: write under another sinkId",
                    is_final=True,
                )
        elif known.sequence >> _BATCH_BITS == claim.batch:
            return RepeatCheck(
                0,
                known,
                f"producer {claim.producer} begins micro-batch {claim.batch} at {claim.first:x}, but stored its "
                f"message {known.sequence:x} before: the rows are not the same as the first time",
                is_final=True,
            )
        return RepeatCheck(0, known)

    def appended(self, producer: str, last: Known) -> None:
        """Notes that the messages of a producer up to this one are in the log now."""
        known = self._recent.get(producer)
        if known is None or last.sequence > known.sequence:
            self._recent[producer] = last

    # reading it off the log

    def window(self, first: int, limit: int, segment_size: int) -> Window | None:
        """Returns what to read next towards `limit`, a record boundary, or None when everything below it was read."""
        if self.scanned < first:
            self.scanned = first
            self._begins_late = True
        if self.scanned >= limit:
            return None
        segment_start = self.scanned - self.scanned % segment_size
        whole = min(limit, segment_start + segment_size)
        stop = min(whole, self.scanned + _WINDOW)
        start = max(first, segment_start, self.scanned - self._look_back)
        return Window(
            self._truncations, start, stop, starts_whole=start in (first, segment_start), stops_whole=stop == whole
        )

    def passed(self, window: Window, data: bytes) -> None:
        """Takes the bytes of a window that `window` gave; does nothing if the log was truncated meanwhile."""
        if window.log != self._truncations or not window.start <= self.scanned < window.stop:
            return
        if not self._settle_newest(window, data):
            self._look_back = self._look_back * 2 or _WINDOW  # a key's record begins before the window: read that too
            return
        if self._begins_late and window.starts_whole and len(data) >= FIXED_SIZE_V4:
            self._forget_until(_stored_ms(data, 0))
            self._begins_late = False
        self._look_back = 0
        # A key without its last bytes is not found: the next window begins with what may be the beginning of one.
        self.scanned = window.stop if window.stops_whole else window.stop - _KEY_SIZE
        self._drop_recent_that_are_settled()

    def _settle_newest(self, window: Window, data: bytes) -> bool:
        """Finds the keys without parsing records, then parses the record of each producer's newest key.

        Returns False, with nothing changed, if one of those records begins before the window.
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
        found = [self._message_at(window, data, at) for _, at in newest.values()]
        if any(one is Where.IN_NO_PROPERTIES for one in found):
            # The text of a key also stands elsewhere, say in a body: then every one is checked.
            found = [self._message_at(window, data, match.start()) for match in _KEY.finditer(data)]
        if any(one is Where.BEFORE_THE_WINDOW for one in found):
            return False
        for one in found:
            if not isinstance(one, Where):
                self._settle(*one)
        return True

    def _message_at(self, window: Window, data: bytes, at: int) -> "tuple[str, Known] | Where":
        """Returns the producer and the message of the key whose text is at this place."""
        match = _KEY.match(data, at)
        if match is None:
            return Where.IN_NO_PROPERTIES
        start = _record_before(data, at, window.start)
        if start is None:
            is_sure = window.starts_whole or self._look_back >= _LOOK_BACK_MAX
            return Where.IN_NO_PROPERTIES if is_sure else Where.BEFORE_THE_WINDOW
        _, _, properties_start, end = tail_bounds(data, start)
        if not properties_start <= at < match.end() <= end:
            return Where.IN_NO_PROPERTIES
        queue_offset = int.from_bytes(data[start + QUEUE_OFFSET_AT : start + QUEUE_OFFSET_AT + 8], "big")
        body_crc = int.from_bytes(data[start + CRC_AT : start + CRC_AT + 4], "big") & CRC_MASK
        known = Known(int(match[2], 16), window.start + end, queue_offset, _stored_ms(data, start), body_crc)
        return match[1].decode(), known

    def _settle(self, producer: str, message: Known) -> None:
        known = self._settled.get(producer)
        if known is None or message.sequence > known.sequence:
            self._settled[producer] = message
        self._settled.move_to_end(producer)
        while len(self._settled) > self._producers_max:
            self._forget_oldest()

    def settle(self, dispatched: int) -> None:
        """Moves on without scanning: on a master that is ready, every checked append since the horizon is recent."""
        if not self.is_ready or dispatched <= self.scanned:
            return
        for producer, known in self._recent.items():
            if known.end <= dispatched:
                self._settle(producer, known)
        self.scanned = dispatched
        self._drop_recent_that_are_settled()

    def _drop_recent_that_are_settled(self) -> None:
        passed = [producer for producer, known in self._recent.items() if known.end <= self.scanned]
        for producer in passed:
            del self._recent[producer]

    # forgetting

    def forget_before(self, first: int) -> None:
        """Forgets producers whose last message was deleted: the log begins at `first` now."""
        while self._settled and next(iter(self._settled.values())).end <= first:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        _, known = self._settled.popitem(last=False)
        self._forget_until(known.stored_ms)

    def _forget_until(self, stored_ms: int) -> None:
        self.forgotten_ms = max(self.forgotten_ms, stored_ms)

    def truncate(self, offset: int) -> None:
        """Forgets what was recent: the log was truncated to `offset`, or this node began to follow another."""
        self._recent.clear()
        self._truncations += 1
        if self.scanned > offset:
            # Settled records were readable, so a truncation never reaches them: this is another log. It is read afresh.
            self._settled.clear()
            self.scanned = 0

    def begin_writing(self, end: int) -> None:
        """Prepares this node to be the master of a log that ends at `end`."""
        self.truncate(end)
        self.horizon = end

    # snapshot

    def picture(self) -> Callable[[], dict[str, Any]]:
        """Returns what makes the snapshot of this moment, in any thread: a hundred thousand producers take long."""
        settled, scanned, forgotten_ms = dict(self._settled), self.scanned, self.forgotten_ms

        def snapshot() -> dict[str, Any]:
            producers = {producer: [f"{known.sequence:x}", *known[1:]] for producer, known in settled.items()}
            return {
                "version": SNAPSHOT_VERSION,
                "scanned": scanned,
                "forgotten_ms": forgotten_ms,
                "producers": producers,
            }

        return snapshot

    def snapshot(self) -> dict[str, Any]:
        return self.picture()()

    def load(self, snapshot: Mapping[str, Any], first: int, limit: int) -> None:
        """Takes a snapshot over if it fits the log [first, limit); otherwise everything is read off the log again."""
        scanned = snapshot.get("scanned")
        if snapshot.get("version") != SNAPSHOT_VERSION or not isinstance(scanned, int) or not first <= scanned <= limit:
            return
        self.scanned = scanned
        self.forgotten_ms = int(snapshot.get("forgotten_ms", 0))
        for producer, (sequence, *rest) in dict(snapshot.get("producers", {})).items():
            self._settled[str(producer)] = Known(int(sequence, 16), *map(int, rest))
        self.forget_before(first)


def _stored_ms(data: bytes, start: int) -> int:
    """Returns when the record at this place was stored."""
    return store_timestamp(data, start, int.from_bytes(data[start + SYS_FLAG_AT : start + SYS_FLAG_AT + 4], "big"))
