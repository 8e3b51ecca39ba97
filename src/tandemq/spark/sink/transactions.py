"""Exactly once on a broker that can't refuse repeats: half messages, one decision, then commits.

A task stores every row as a half message, which no consumer sees, and hands their ids to the driver. `commit()` there

    1. looks for the decision of (sink, micro-batch) on every broker group
    2. finds none: writes it, with all ids, to every group that has one of the halves, and waits until it is stored;
       from now on the micro-batch counts
    3. commits each half; after a crash a later run finds the decision, commits *its* ids, as far as their messages are
       not there yet, and rolls its own new halves back

`abort()` rolls back only what no decision names. Halves of killed tasks are nobody's: the broker asks for them after
`transactionTimeoutSeconds`, gets no answer and drops them. Nothing is ever decided by age.

A decision is a run of JSON messages in queue 0 of the topic TANDEMQ_SPARK_DECISIONS: parts, then one that closes it.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from tandemq.client.bulk import QueueReader
from tandemq.codec import fastjson
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.errors import NoRoute, RemotingError, ReplyError, TandemError
from tandemq.formats.record import parse_record, walk
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
from tandemq.spark.sink.outbox import WAIT_STORED, Outgoing, send_once
from tandemq.spark.sink.routes import WriteRoutes

DECISION_TOPIC = "TANDEMQ_SPARK_DECISIONS"
CAPABILITY = "tandemqIdempotentSends"
"""Entry of a broker's runtime info: it refuses repeats by itself."""
_IDS_PER_PART = 10_000
_LOOK_BACK = 5_000
"""Newest decision messages that are read when looking for one; older ones are found by key."""
_UNDER_WAY = 256


def _groups_of(halves: Iterable["Half"]) -> set[str]:
    return {half.broker for half in halves}


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
    """Returns the half message of a broker's answer to its send."""
    _, physical_offset = parse_offset_message_id(message_id)
    return Half(queue.broker_name, queue.topic, queue_offset, physical_offset, key)


def refuses_repeats(options: SinkOptions) -> bool:
    """Returns whether every broker group's master knows idempotent sends."""
    routes = WriteRoutes(options)
    for address in routes.awaited_masters().values():
        link = routes.access.link(address)
        try:
            reply = link.call(RequestCode.GET_BROKER_RUNTIME_INFO, {}).raise_for_code()
            if fastjson.loads(bytes(reply.body)).get("table", {}).get(CAPABILITY) != "true":
                return False
        finally:
            link.close()
    return True


class Coordinator:
    """The driver's side of one sink."""

    def __init__(self, options: SinkOptions, sink: str) -> None:
        self._options = options
        self._sink = sink
        self._routes = WriteRoutes(options)

    def commit(self, batch: int, halves: list[Half]) -> None:
        """Makes the micro-batch count, once; `halves` are those of this run's tasks."""
        decided, have_it = self._decision(batch)
        if decided is None:
            self._decide(batch, halves, _groups_of(halves))
            self._end(halves, TRANSACTION_COMMIT)
            return
        self._decide(batch, decided, _groups_of(decided) - have_it)
        self._end([half for half in decided if not self._is_delivered(half)], TRANSACTION_COMMIT)
        known = set(decided)
        self._end([half for half in halves if half not in known], TRANSACTION_ROLLBACK)

    def abort(self, batch: int, halves: list[Half]) -> None:
        """Rolls back what no decision names: Spark also calls this when commit() itself failed."""
        if halves and self._decision(batch)[0] is None:
            self._end(halves, TRANSACTION_ROLLBACK)

    # the decision

    def _name(self, batch: int) -> str:
        return f"{self._sink}/{batch}"

    def _decide(self, batch: int, halves: list[Half], groups: set[str]) -> None:
        """Writes the decision to these broker groups; returns when all of them have stored it."""
        name = self._name(batch)
        parts = [halves[n : n + _IDS_PER_PART] for n in range(0, len(halves), _IDS_PER_PART)]
        for group in sorted(groups):
            for number, part in enumerate(parts):
                self._write(group, name, {"name": name, "part": number, "ids": part})
            self._write(group, name, {"name": name, "parts": len(parts)})

    def _write(self, group: str, name: str, document: dict[str, Any]) -> None:
        key = encode_properties({KEYS: name.replace(" ", "_")}).decode()
        outgoing = Outgoing(
            QueueRef(DECISION_TOPIC, group, 0), json.dumps(document).encode(), 1, 0, key + WAIT_STORED, single=True
        )
        send_once(self._options, self._routes, outgoing)

    def _decision(self, batch: int) -> tuple[list[Half] | None, set[str]]:
        """Returns the ids of the decision that counts, None if there is none, and the broker groups that have it.

        Commits begin when all groups with a half of the decision have it. So of two decisions, left by tries that saw
        different clusters, the one that all its groups have counts; the other one was never acted on.
        """
        found = {group: self._decision_on(members, self._name(batch)) for group, members in self._members().items()}
        decisions = [halves for halves in found.values() if halves is not None]
        for halves in sorted(decisions, key=lambda halves: any(found.get(g) != halves for g in _groups_of(halves))):
            return halves, {group for group, known in found.items() if known == halves}
        return None, set()

    def _members(self) -> dict[str, list[str]]:
        members = self._routes.members()
        if not members:
            raise NoRoute("no broker is up: it can't be told whether this micro-batch was decided before")
        return members

    def _decision_on(self, members: list[str], name: str) -> list[Half] | None:
        """Returns the ids of the first closed decision of this name on a broker group, None if there is none."""
        parts: dict[int, list[Half]] = {}
        for document in self._documents(members, name):
            if document.get("name") != name:
                continue
            if "part" in document:
                # A try that died before it closed its decision left parts that do not count; the next one's replace
                # them.
                parts[document["part"]] = [Half(*half) for half in document["ids"]]
            else:
                return [half for number in range(document["parts"]) for half in parts[number]]
        return None

    def _documents(self, members: list[str], name: str) -> Iterator[dict[str, Any]]:
        """Yields decision messages in their order: those found by key, else the newest of the queue."""
        address = self._answering(members)
        by_key = self._by_key(address, DECISION_TOPIC, name.replace(" ", "_"))
        if any("parts" in document for document in by_key):
            yield from by_key
            return
        access = self._routes.access
        with QueueReader(address, timeout=access.timeout_s, credentials=access.credentials, tls=access.tls) as reader:
            try:
                first, end = reader.range(DECISION_TOPIC, 0)
            except ReplyError:
                return
            for chunk in reader.read(DECISION_TOPIC, 0, max(first, end - _LOOK_BACK), end):
                for position, _, _ in walk(chunk.records, 0, len(chunk.records)):
                    yield json.loads(parse_record(chunk.records, position).body)

    def _answering(self, members: list[str]) -> str:
        """Returns the first member of a broker group that can be reached."""
        for address in members:
            try:
                self._routes.access.link(address).close()
            except RemotingError:
                continue
            return address
        raise NoRoute(f"no member of {members} answers: it can't be told whether this micro-batch was decided before")

    def _by_key(self, address: str, topic: str, key: str) -> list[dict[str, Any]]:
        found = [json.loads(message.body) for message in self._query(address, topic, key)]
        return [document for document in found if isinstance(document, dict)]

    def _query(self, address: str, topic: str, key: str, unique: bool = False) -> list[Any]:
        """Returns messages by key, oldest first; the index may be a moment later than the log."""
        link = self._routes.access.link(address)
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

    # ending halves

    def _is_delivered(self, half: Half) -> bool:
        """Returns whether an earlier run committed it: brokers would deliver it again."""
        address = self._routes.awaited_master(half.broker)
        return bool(self._query(address, half.topic, half.key, unique=True))

    def _end(self, halves: list[Half], decision: int) -> None:
        """Commits or rolls back, several under way at once, every answer awaited."""
        by_broker: dict[str, list[Half]] = {}
        for half in halves:
            by_broker.setdefault(half.broker, []).append(half)
        for broker, group in by_broker.items():
            link = self._routes.access.link(self._routes.awaited_master(broker))
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
