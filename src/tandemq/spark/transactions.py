"""Exactly once on a broker that can't refuse repeats: half messages, one decision, then commits.

A task stores every row as a half message, which no consumer sees, and hands their ids to the driver. `commit()` there

    1. looks for the decision of (sink, micro-batch)
    2. finds none: writes it, with all ids, and waits until it is stored; from now on the micro-batch counts
    3. commits each half; after a crash a later run finds the decision, commits *its* ids, as far as their messages are
       not there yet, and rolls its own new halves back

`abort()` rolls back only what no decision names. Halves of killed tasks are nobody's: the broker asks for them after
`transactionTimeoutSeconds`, gets no answer and drops them. Nothing is ever decided by age.

A decision is a run of JSON messages in one queue of the topic TANDEMQ_SPARK_DECISIONS: parts, then one that closes it.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from tandemq.client.bulk import BlockingLink, QueueReader
from tandemq.codec import fastjson
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.record import parse_record, walk
from tandemq.errors import ReplyError, TandemError
from tandemq.model.message import (
    CHECK_IMMUNITY_SECONDS,
    KEYS,
    PRODUCER_GROUP,
    TRANSACTION_COMMIT,
    TRANSACTION_PREPARED_FLAG,
    TRANSACTION_ROLLBACK,
    UNIQUE_KEY,
    encode_properties,
    parse_offset_message_id,
)
from tandemq.model.topic import QueueRef
from tandemq.spark.options import SinkOptions
from tandemq.spark.sender import WAIT_STORED, Outgoing, Sender

DECISION_TOPIC = "TANDEMQ_SPARK_DECISIONS"
CAPABILITY = "tandemqIdempotentSends"
"""Entry of a broker's runtime info: it refuses repeats by itself."""
_IDS_PER_PART = 10_000
_LOOK_BACK = 5_000
"""Newest decision messages that are read when looking for one; older ones are found by key."""
_UNDER_WAY = 256


class Half(NamedTuple):
    """One half message: where it lies and where its message will be."""

    broker: str
    topic: str
    queue_offset: int
    """In the broker's half queue."""
    physical_offset: int
    key: str
    """Its UNIQ_KEY, which the committed message carries too."""


def half_properties(options: SinkOptions) -> str:
    return (
        f"{TRANSACTION_PREPARED_FLAG}\x01true\x02{PRODUCER_GROUP}\x01{options.producer_group}\x02"
        f"{CHECK_IMMUNITY_SECONDS}\x01{options.transaction_timeout_seconds}\x02"
    )


def half_of(queue: QueueRef, key: str, queue_offset: int, message_id: str) -> Half:
    """From a broker's answer to the send of a half message."""
    _, physical_offset = parse_offset_message_id(message_id)
    return Half(queue.broker_name, queue.topic, queue_offset, physical_offset, key)


def refuses_repeats(options: SinkOptions, brokers: Iterable[str] | None = None) -> bool:
    """Whether every master (of these brokers) knows idempotent sends."""
    sender = Sender(options)
    for name, group in sender.cluster.groups().items():
        if brokers is not None and name not in brokers:
            continue
        if not group.master:
            continue
        link = _link(sender, options, group.master)
        try:
            reply = link.call(RequestCode.GET_BROKER_RUNTIME_INFO, {}).raise_for_code()
            if fastjson.loads(bytes(reply.body)).get("table", {}).get(CAPABILITY) != "true":
                return False
        finally:
            link.close()
    return True


def _link(sender: Sender, options: SinkOptions, address: str) -> BlockingLink:
    return BlockingLink(address, timeout=options.request_timeout_ms / 1000, credentials=sender.cluster.credentials())


class Coordinator:
    """The driver's side of one sink."""

    def __init__(self, options: SinkOptions, sink: str) -> None:
        self._options = options
        self._sink = sink
        self._sender = Sender(options)

    def commit(self, batch: int, halves: list[Half]) -> None:
        """Makes the micro-batch count, once; `halves` are those of this run's tasks."""
        decided = self._decision(batch)
        if decided is None:
            self._decide(batch, halves)
            self._end(halves, TRANSACTION_COMMIT)
            return
        self._end([half for half in decided if not self._is_delivered(half)], TRANSACTION_COMMIT)
        known = set(decided)
        self._end([half for half in halves if half not in known], TRANSACTION_ROLLBACK)

    def abort(self, batch: int, halves: list[Half]) -> None:
        """Spark also calls this when commit() itself failed: what a decision names must stay."""
        if halves and self._decision(batch) is None:
            self._end(halves, TRANSACTION_ROLLBACK)

    # -- the decision ---------------------------------------------------------------------------------

    def _queue(self) -> QueueRef:
        """Always the same queue: the first of the topic; made on first use."""
        return self._sender.queues(DECISION_TOPIC)[0]

    def _name(self, batch: int) -> str:
        return f"{self._sink}/{batch}"

    def _decide(self, batch: int, halves: list[Half]) -> None:
        name = self._name(batch)
        parts = [halves[n : n + _IDS_PER_PART] for n in range(0, len(halves), _IDS_PER_PART)]
        for number, part in enumerate(parts):
            self._write(name, {"name": name, "part": number, "ids": part})
        self._write(name, {"name": name, "parts": len(parts)})

    def _write(self, name: str, document: dict[str, Any]) -> None:
        key = encode_properties({KEYS: name.replace(" ", "_")}).decode()
        body = json.dumps(document).encode()
        self._sender.send(Outgoing(self._queue(), body, 1, 0, key + WAIT_STORED, single=True))
        self._sender.flush()

    def _decision(self, batch: int) -> list[Half] | None:
        """The ids of the first closed decision of this name, None if there is none."""
        name = self._name(batch)
        parts: dict[int, list[Half]] = {}
        for document in self._documents(name):
            if document.get("name") != name:
                continue
            if "part" in document:
                # A run that died before it closed its decision left parts that do not count; the next one's
                # replace them.
                parts[document["part"]] = [Half(*half) for half in document["ids"]]
            else:
                return [half for number in range(document["parts"]) for half in parts[number]]
        return None

    def _documents(self, name: str) -> Iterator[dict[str, Any]]:
        """Decision messages in their order: those found by key, and the newest of the queue."""
        queue = self._queue()
        address = self._sender.master(queue.broker_name)
        by_key = self._by_key(address, DECISION_TOPIC, name.replace(" ", "_"))
        if any("parts" in document for document in by_key):
            yield from by_key
            return
        with QueueReader(address, timeout=self._options.request_timeout_ms / 1000) as reader:
            try:
                first, end = reader.range(DECISION_TOPIC, queue.queue_id)
            except ReplyError:
                return
            for chunk in reader.read(DECISION_TOPIC, queue.queue_id, max(first, end - _LOOK_BACK), end):
                for position, _, _ in walk(chunk.records, 0, len(chunk.records)):
                    yield json.loads(parse_record(chunk.records, position).body)

    def _by_key(self, address: str, topic: str, key: str) -> list[dict[str, Any]]:
        found = [json.loads(message.body) for message in self._query(address, topic, key)]
        return [document for document in found if isinstance(document, dict)]

    def _query(self, address: str, topic: str, key: str, unique: bool = False) -> list[Any]:
        """Messages by key, oldest first; the index may lag a moment behind the log."""
        link = _link(self._sender, self._options, address)
        try:
            fields = {
                "topic": topic, "key": key, "maxNum": "64", "beginTimestamp": "0",
                "endTimestamp": str((1 << 63) - 1), "_UNIQUE_KEY_QUERY": "true" if unique else "false",
            }  # fmt: skip
            reply = link.call(RequestCode.QUERY_MESSAGE, fields)
        finally:
            link.close()
        if reply.code != ResponseCode.SUCCESS:
            return []
        body = bytes(reply.body)
        messages = [parse_record(body, position) for position, _, _ in walk(body, 0, len(body))]
        name = UNIQUE_KEY if unique else KEYS
        exact = [m for m in messages if m.topic == topic and m.properties.get(name) == key]
        return sorted(exact, key=lambda message: message.physical_offset)

    # -- ending halves ----------------------------------------------------------------------------------

    def _is_delivered(self, half: Half) -> bool:
        """Whether an earlier run committed it: brokers would deliver it again."""
        address = self._sender.master(half.broker, fresh=True)
        return bool(self._query(address, half.topic, half.key, unique=True))

    def _end(self, halves: list[Half], decision: int) -> None:
        """Commits or rolls back, several under way at once, every answer awaited."""
        by_broker: dict[str, list[Half]] = {}
        for half in halves:
            by_broker.setdefault(half.broker, []).append(half)
        for broker, group in by_broker.items():
            link = _link(self._sender, self._options, self._sender.master(broker, fresh=True))
            try:
                for start in range(0, len(group), _UNDER_WAY):
                    part = group[start : start + _UNDER_WAY]
                    asked = [link.send(RequestCode.END_TRANSACTION, self._fields(half, decision)) for half in part]
                    for half, opaque in zip(part, asked, strict=True):
                        self._check(half, link.wait(opaque), decision)
            finally:
                link.close()

    def _check(self, half: Half, reply: Any, decision: int) -> None:
        if decision == TRANSACTION_COMMIT and reply.code != ResponseCode.SUCCESS:
            raise TandemError(
                f"{half.broker} did not commit message {half.key} to {half.topic}: {reply.remark} (code {reply.code}); "
                "the decision stands, a restart of the query tries again"
            )

    def _fields(self, half: Half, decision: int) -> dict[str, str]:
        return {
            "producerGroup": self._options.producer_group, "tranStateTableOffset": str(half.queue_offset),
            "commitLogOffset": str(half.physical_offset), "commitOrRollback": str(decision),
            "fromTransactionCheck": "false", "msgId": half.key, "transactionId": half.key, "topic": half.topic,
        }  # fmt: skip
