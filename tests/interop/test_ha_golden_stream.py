"""The HA stream of a real RocketMQ 4.9.7 pair, replayed against both of our state machines."""

import gzip
import json
from pathlib import Path
from typing import NamedTuple

import pytest

from tandemq.codec.ha_classic import Chunk, Head, ReportReader, TransferReader
from tandemq.model.ack_level import AckLevel
from tandemq.replication.acks import AckQueue
from tandemq.replication.classic_slave_state import ClassicSlaveState
from tandemq.replication.decisions import Append, Close, Decision, LogEnds, Opened, Prepare, Save, Send
from tandemq.replication.epochs import ReplicaRecord
from tandemq.replication.following.core import SlaveTerms
from tandemq.replication.master_state import MasterState
from tandemq.replication.mastership.core import MasterTerms

STREAM = Path(__file__).parents[1] / "golden" / "rocketmq-4.9.7" / "ha-stream.jsonl.gz"
SEGMENT = 65536


class Event(NamedTuple):
    link: int
    sender: str
    data: bytes


def events() -> list[Event]:
    with gzip.open(STREAM, "rt") as lines:
        found = map(json.loads, lines)
        return [Event(e["link"], e["from"], bytes.fromhex(e["hex"])) for e in found if e.get("hex")]


def links(stream: list[Event]) -> list[int]:
    return sorted({event.link for event in stream})


def the_log(stream: list[Event]) -> bytes:
    """What the master sent in all, by offset."""
    log = bytearray()
    for link in links(stream):
        reader, at = TransferReader(), 0
        for event in stream:
            if event.link != link or event.sender != "server":
                continue
            for part in reader.feed(event.data):
                if isinstance(part, Head):
                    at = part.offset
                elif isinstance(part, Chunk):
                    log[at : at + len(part.data)] = part.data
                    at += len(part.data)
    return bytes(log)


def reports_of(stream: list[Event], link: int) -> list[int]:
    reader = ReportReader()
    return [r for e in stream if e.link == link and e.sender == "client" for r in reader.feed(e.data)]


class Slave:
    """Our slave, its log a bytearray."""

    def __init__(self) -> None:
        self.log = bytearray()
        self.state = ClassicSlaveState(log=LogEnds(0, 0, 0, SEGMENT), terms=SlaveTerms("g"), now=0.0)
        self.reports: list[int] = []

    def act(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            assert not isinstance(decision, Close), decision
            if isinstance(decision, Append):
                assert decision.offset == len(self.log)
                self.log += decision.data
            elif isinstance(decision, Send):
                self.reports += ReportReader().feed(decision.data)


@pytest.mark.parametrize("size", [None, 1, 1000])
def test_our_slave_follows_the_real_master_to_the_same_bytes_and_reports(size: int | None) -> None:
    stream = events()
    slave = Slave()
    for link in links(stream):
        slave.reports.clear()
        slave.act(slave.state.connected(link, 0.0))
        for event in stream:
            if event.link != link or event.sender != "server":
                continue
            step = size or len(event.data)
            for at in range(0, len(event.data), step):
                slave.act(slave.state.receive(event.data[at : at + step], 0.0))
        real = reports_of(stream, link)
        # Ours joins reports that the real slave sent one by one; it never reports what the real one did not have.
        assert set(slave.reports) <= {0, *real, *slave.reports}
        assert slave.reports[0] == real[0]
        assert slave.reports[-1] == max(real)
        assert slave.reports == sorted(slave.reports)
        slave.state.disconnected(0.0)
    assert bytes(slave.log) == the_log(stream)


class Master:
    """Our master on the log that the real one had."""

    def __init__(self, log: bytes) -> None:
        self.bytes = log
        terms = MasterTerms("g", AckLevel(2), classic_batch=32768, last_file_only=True)
        record = ReplicaRecord("m#1")
        self.acks = AckQueue()
        self.state = MasterState(
            record=record, terms=terms, log=LogEnds(0, 0, 0, SEGMENT), acks=self.acks, new_id=lambda: "id", now=0.0
        )
        self.opened = False
        self.sent = bytearray()
        self.act(self.state.start(0.0))

    def act(self, decisions: list[Decision]) -> None:
        todo = list(decisions)
        while todo:
            decision = todo.pop(0)
            assert not isinstance(decision, Close), decision
            if isinstance(decision, Prepare):
                todo += self.state.prepared(0, 0.0)
            elif isinstance(decision, Save):
                todo += self.state.saved(decision.record, 0.0)
            elif isinstance(decision, Opened):
                self.opened = True
            elif isinstance(decision, Send):
                self.sent += decision.data

    def stream(self, session: int) -> None:
        while (batch := self.state.streaming.next_batch(session, 0.0)) is not None:
            size = min(batch.size_max, SEGMENT - batch.offset % SEGMENT)
            data = self.bytes[batch.offset : batch.offset + size]
            self.sent += self.state.streaming.frame_header(session, data) + data
            self.state.streaming.sent(session, batch.offset + size, 0.0)


def test_our_master_takes_the_real_slaves_reports_and_sends_the_same_bytes() -> None:
    stream = events()
    log = the_log(stream)
    master = Master(log)
    assert master.opened
    for link in links(stream):
        master.act(master.state.connected(link, "127.0.0.1:5", 0.0))
        sent_from = len(master.sent)
        for event in stream:
            if event.link != link:
                continue
            if event.sender == "client":
                for report in ReportReader().feed(event.data):
                    # The log had reached at least what the slave reports.
                    if report > master.state.log.end:
                        master.act(master.state.appended(report))
                        master.stream(link)
                    master.act(master.state.receive(link, report.to_bytes(8, "big"), 0.0))
                    master.stream(link)
        master.act(master.state.appended(len(log)) if link == links(stream)[-1] else [])
        master.stream(link)
        replica = next(s for s in master.state.sessions.values() if s.id == link)
        assert replica.received == max(reports_of(stream, link))
        check_frames(bytes(master.sent[sent_from:]), log)
        master.act(master.state.disconnected(link, 0.0))


def check_frames(data: bytes, log: bytes) -> None:
    """Contiguous, never across a segment, never above 32 KiB, and the very bytes."""
    reader, at, size = TransferReader(), 0, 0
    first = True
    for part in reader.feed(data):
        if isinstance(part, Head):
            assert first or part.offset == at
            first = False
            at, size = part.offset, part.size
            assert size <= 32768
            assert at // SEGMENT == (at + max(size, 1) - 1) // SEGMENT
        else:
            assert bytes(part.data) == log[at : at + len(part.data)]
            at += len(part.data)
