"""What our brokers remember of a sink's writes: where the rows of a micro-batch go, and that a named write is complete.

`exactly_once` needs a repeat to place every row as the first try did, whatever has happened to the cluster since:
queues were added, a broker group is away or new. So before a sink's first message of a (topic, micro-batch) the
placement is agreed on: an entry in the topic `TANDEMQ_SPARK_LEDGER`, written to **every** broker group that has a
master. Entries are idempotent sends, so the first one stored on a group stays, and whoever comes later is told where it
is and reads it.

    {"kind": "placement", "sink": …, "topic": …, "batch": 7, "queues": {"broker-a": 4, "broker-b": 4}, "held_by": […]}
    {"kind": "complete", "sink": …, "rows": [10000, 9998]}       rows of each partition, for writes with a `sinkId`

A placement holds once every group in `held_by` has it. A repeat that sees only some of those groups still finds it
there and waits for the others, or fails with their names. Two tries that saw different clusters may leave two entries;
only one of them can be on all its groups.

Each micro-batch has its own placement, so a stream takes new queues and groups into use with the next micro-batch.
"""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from tandemq.client.bulk import QueueReader
from tandemq.clock import Clock, SystemClock
from tandemq.codec.codes import RequestCode
from tandemq.errors import ClientError, RemotingError, ReplyError, TandemError
from tandemq.formats.record import parse_record
from tandemq.model.message import KEYS, UNIQUE_KEY, encode_properties
from tandemq.model.topic import QueueRef
from tandemq.spark.options import SinkOptions
from tandemq.spark.runtime.pause import pause
from tandemq.spark.sink.idempotent_key import CHECKED_PREFIX, claim, digest, sequence
from tandemq.spark.sink.outbox import WAIT_STORED, NotDelivered, Outgoing, send_once
from tandemq.spark.sink.routes import WriteRoutes

TOPIC = "TANDEMQ_SPARK_LEDGER"
_READ_PAUSE_SECONDS = 0.05


class Entry(NamedTuple):
    """An entry as a broker group has it."""

    document: dict[str, Any]
    stored_ms: int
    """When it was stored; 0 if that was just now."""


class Placement(NamedTuple):
    """The queues that the rows of one topic and micro-batch go to, in their order."""

    queues: tuple[QueueRef, ...]
    since_ms: int
    """When it was agreed on; 0 if that was just now."""


class CannotBeExact(TandemError):
    """This write can't be exactly once; the message says why."""


Book = Callable[[str, str, int, dict[str, Any]], Entry]
"""(broker group, name of the entry, batch, document) -> the entry that the group has under that name from now on."""


class WriteLedger:
    """The entries of one sink."""

    def __init__(self, sink: str, groups: Callable[[], list[str]], book: Book) -> None:
        self._sink = sink
        self._groups = groups
        self._book = book

    def placement(self, topic: str, batch: int, queues: tuple[QueueRef, ...]) -> Placement:
        """Returns where the rows go: as proposed, or as an earlier try agreed on."""
        counts: dict[str, int] = {}
        for queue in queues:
            counts[queue.broker_name] = counts.get(queue.broker_name, 0) + 1
        proposed = {
            "kind": "placement", "sink": self._sink, "topic": topic, "batch": batch, "queues": counts,
            "held_by": sorted({*self._groups(), *counts}),
        }  # fmt: skip
        agreed = self._agreed(f"placement/{self._sink}/{topic}", batch, proposed)
        found = agreed.document["queues"].items()
        return Placement(
            tuple(QueueRef(topic, broker, n) for broker, count in sorted(found) for n in range(count)), agreed.stored_ms
        )

    def _agreed(self, name: str, batch: int, proposed: dict[str, Any]) -> Entry:
        """Returns the entry that all groups in its `held_by` have.

        A group that has another entry already makes that the next candidate, before any further group is asked: what
        is not known there yet must be completed, not contradicted.
        """
        candidate, tried = proposed, list[dict[str, Any]]()
        while candidate not in tried:
            tried.append(candidate)
            since_ms = 0
            for group in candidate["held_by"]:
                entry = self._book(group, name, batch, candidate)
                self._check_batch(entry.document, batch)
                since_ms = max(since_ms, entry.stored_ms)
                if entry.document != candidate:
                    candidate = entry.document
                    break
            else:
                return Entry(candidate, since_ms)
        raise CannotBeExact(
            f"sink {self._sink!r}: earlier tries of micro-batch {batch} saw different clusters and agreed on no "
            f"placement of {proposed['topic']!r}: {[document['queues'] for document in tried]}; use another sinkId"
        )

    def _check_batch(self, document: dict[str, Any], batch: int) -> None:
        if document["batch"] > batch:
            raise CannotBeExact(
                f"sink {self._sink!r} has begun micro-batch {document['batch']}, but this query is at {batch}: its "
                "checkpoint is older than what was written. Go on from the newer checkpoint, or use another sinkId"
            )

    def complete(self, rows: list[int]) -> None:
        """Says that a named write is complete, with the rows of each partition."""
        document = {"kind": "complete", "sink": self._sink, "rows": rows}
        for group in self._groups():
            known = self._book(group, f"complete/{self._sink}", 0, document).document
            if known != document:
                raise CannotBeExact(_changed(self._sink, known["rows"], rows))

    @staticmethod
    def check_rows(sink: str, known: list[int], partition: int, rows: int, *, is_all: bool) -> None:
        """Raises CannotBeExact if a partition of a repeated write has not as many rows as the first time."""
        before = known[partition] if partition < len(known) else 0
        if rows > before or (is_all and rows < before):
            raise CannotBeExact(
                f"sinkId {sink!r} was written before with {len(known)} partitions of {known[:8]} rows; this time "
                f"partition {partition} has {'' if is_all else 'more than '}{rows if is_all else before}. Only the "
                "same rows in the same partitions and order can be repeated: use another sinkId"
            )


def _changed(sink: str, known: list[int], rows: list[int]) -> str:
    return (
        f"sinkId {sink!r} was written before with {len(known)} partitions of {known[:8]} rows, this time with "
        f"{len(rows)} of {rows[:8]}: only the same rows in the same partitions and order can be repeated"
    )


class LedgerBook:
    """The entries of a live cluster: one method, which stores an entry once and reads it back if it is older."""

    def __init__(self, options: SinkOptions, routes: WriteRoutes, *, clock: Clock | None = None) -> None:
        self._options = options
        self._routes = routes
        self._clock = clock or SystemClock()

    def groups(self) -> list[str]:
        """Returns the broker groups that have a master now."""
        return list(self._routes.masters())

    def find(self, name: str) -> dict[str, Any] | None:
        """Returns an entry of batch 0 that some group has, or None."""
        for group in self.groups():
            link = self._routes.access.link(self._routes.master(group))
            try:
                fields = {
                    "topic": TOPIC, "key": _key(name, 0), "maxNum": "1", "beginTimestamp": "0",
                    "endTimestamp": str((1 << 63) - 1), "_UNIQUE_KEY_QUERY": "true",
                }  # fmt: skip
                reply = link.call(RequestCode.QUERY_MESSAGE, fields)
            finally:
                link.close()
            if reply.code == 0 and reply.body:
                found: dict[str, Any] = json.loads(parse_record(bytes(reply.body)).body)
                return found
        return None

    def __call__(self, group: str, name: str, batch: int, document: dict[str, Any]) -> Entry:
        number = sequence(batch, 0)
        properties = encode_properties({UNIQUE_KEY: _key(name, batch), KEYS: str(document["sink"])}).decode()
        text = properties + WAIT_STORED + claim(digest(name), None, number, number, 1, keeps=True)
        body = json.dumps(document).encode()
        outgoing = Outgoing(QueueRef(TOPIC, group, 0), body, 1, 0, text, single=True)
        try:
            ack = send_once(self._options, self._routes, outgoing)
        except NotDelivered as error:
            raise NotDelivered(
                f"sink {document['sink']!r}: broker group {group!r} must agree on where rows go: {error}"
            ) from None
        return Entry(document, 0) if ack.message_ids else self._read(group, ack.queue_offset)

    def _read(self, group: str, offset: int) -> Entry:
        """Reads an entry; a promotion or a slow dispatch may hide it for a moment."""
        deadline = self._clock.monotonic() + self._options.delivery_timeout_ms / 1000
        is_fresh = False
        while True:
            try:
                address = self._routes.master(group, fresh=is_fresh)
                with QueueReader(
                    address,
                    timeout=self._options.request_timeout_ms / 1000,
                    credentials=self._routes.access.credentials,
                    tls=self._routes.access.tls,
                ) as reader:
                    for chunk in reader.read(TOPIC, 0, offset, offset + 1):
                        record = parse_record(bytes(chunk.records))
                        return Entry(json.loads(record.body), record.store_timestamp)
            except (RemotingError, ReplyError, ClientError, OSError):
                if self._clock.monotonic() >= deadline:
                    raise
                is_fresh = True
                pause(_READ_PAUSE_SECONDS)


def _key(name: str, batch: int) -> str:
    return f"{CHECKED_PREFIX}{digest(name)}{sequence(batch, 0):016x}"
