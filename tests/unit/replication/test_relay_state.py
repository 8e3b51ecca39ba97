"""A slave hands its confirmed bytes on to observers, and to nobody else."""

from collections.abc import Iterable
from itertools import count

import pytest

from tandemq.codec import ha_classic
from tandemq.codec.ha_reasons import Reason
from tandemq.replication.classic_slave_state import ClassicSlaveState
from tandemq.replication.decisions import Append, Close, Decision, LogEnds, Note, Send
from tandemq.replication.epochs import Epoch, History, Promise, ReplicaRecord
from tandemq.replication.following.core import SlaveTerms
from tandemq.replication.relay_state import (
    SESSIONS_MAX,
    UNPROVEN_SECONDS,
    RelayLog,
    RelayState,
    RelayTerms,
)
from tandemq.replication.served import UNPROVEN_MAX
from tandemq.replication.slave_state import SlaveState

SEGMENT = 1 << 16
LOG = bytes(range(256)) * 200
HISTORY = History((Epoch(1, "aa", 0), Epoch(3, "bb", 20_000)))


class Relay:
    """A slave with a log of which a part is confirmed."""

    def __init__(self, key: str = "", confirmed: int = 40_000) -> None:
        numbers = count(1)
        self.record = ReplicaRecord("10.0.0.2:1#s", history=HISTORY, promise=Promise(3, "bb"))
        self.log = RelayLog(0, confirmed, SEGMENT)
        self.closed: list[Close] = []
        self.out: list[bytes] = []
        terms = RelayTerms("g", shared_key=key, batch=15_000)
        self.state = RelayState(terms, lambda: self.record, lambda: self.log, lambda: f"{next(numbers):032x}")

    def act(self, decisions: Iterable[Decision]) -> None:
        for decision in decisions:
            if isinstance(decision, Send):
                self.out.append(decision.frame())
            elif isinstance(decision, Close):
                self.closed.append(decision)
            else:
                assert isinstance(decision, Note), "a relay changes nothing"

    def pump(self) -> None:
        while (batch := self.state.next_batch(1)) is not None:
            data = memoryview(LOG)[batch.offset : batch.offset + batch.size_max]
            self.out.append(self.state.frame(1, data))
            self.state.sessions[1].was_sent(batch.offset + len(data), 0.0)


class Observer:
    def __init__(self, key: str = "", *, observer: bool = True, compression: str = "", group: str = "g") -> None:
        self.log = bytearray()
        terms = SlaveTerms(group, shared_key=key, observer=observer, compression=compression)
        self.state = SlaveState(
            record=ReplicaRecord("10.0.0.9:1#o"),
            terms=terms,
            log=LogEnds(0, 0, 0, SEGMENT),
            new_id=lambda: "f" * 32,
            now=0.0,
        )
        self.out: list[bytes] = []

    def act(self, decisions: Iterable[Decision]) -> None:
        for decision in decisions:
            if isinstance(decision, Send):
                self.out.append(decision.frame())
            elif isinstance(decision, Append):
                self.log[decision.offset :] = bytes(decision.data)


def talk(relay: Relay, observer: Observer) -> None:
    relay.act(relay.state.connected(1, "10.0.0.9:5000", 0.0))
    observer.act(observer.state.connected(1, 0.0))
    while observer.out or relay.out:
        said, observer.out = observer.out, []
        for frame in said:
            relay.act(relay.state.receive(1, frame, 0.0))
        relay.pump()
        answered, relay.out = relay.out, []
        for frame in answered:
            observer.act(observer.state.receive(frame, 0.0))


@pytest.mark.parametrize("key", ["", "secret"])
@pytest.mark.parametrize("compression", ["", "zstd"])
def test_an_observer_gets_what_is_confirmed_with_its_history_and_no_more(key: str, compression: str) -> None:
    relay, observer = Relay(key), Observer(key, compression=compression)
    talk(relay, observer)
    assert observer.log == LOG[:40_000]
    assert observer.state.record.history == HISTORY
    assert observer.state.confirmed == 40_000
    assert relay.state.sessions[1].received == 40_000


def test_an_epoch_that_has_no_confirmed_byte_yet_is_not_told() -> None:
    relay, observer = Relay(confirmed=10_000), Observer()
    talk(relay, observer)
    assert observer.state.record.history == History(HISTORY.epochs[:1])


@pytest.mark.parametrize(
    ("observer", "key", "reason"),
    [
        (Observer(observer=False), "", Reason.NOT_MASTER),
        (Observer(group="h"), "", Reason.KEY_REFUSED),
        (Observer("other"), "secret", Reason.KEY_REFUSED),
    ],
)
def test_whoever_is_no_observer_of_this_group_gets_nothing(observer: Observer, key: str, reason: Reason) -> None:
    relay = Relay(key)
    talk(relay, observer)
    assert not observer.log
    assert observer.state.trouble is not None
    assert observer.state.trouble[1] is reason


def test_a_rocketmq_slave_gets_nothing() -> None:
    relay = Relay()
    relay.act(relay.state.connected(1, "10.0.0.9:5000", 0.0))
    relay.act(relay.state.receive(1, ha_classic.encode_report(0), 0.0))
    assert [close.reason for close in relay.closed] == [Reason.NOT_MASTER]


def test_another_history_ends_every_session() -> None:
    relay, observer = Relay(), Observer()
    talk(relay, observer)
    relay.act(relay.state.changed(1.0))
    assert [close.reason for close in relay.closed] == [Reason.STOPPING]
    assert not relay.state.sessions


def test_who_says_nothing_loses_its_place() -> None:
    relay = Relay()
    for number in range(UNPROVEN_MAX + 1):
        relay.act(relay.state.connected(number, "10.0.0.9:5000", 0.0))
    assert [(close.reason, close.session) for close in relay.closed] == [(Reason.TOO_MANY, 0)]
    relay.act(relay.state.tick(UNPROVEN_SECONDS))
    assert not relay.state.sessions


def test_strangers_keep_no_observer_out(monkeypatch: pytest.MonkeyPatch) -> None:
    relay, observer = Relay(), Observer()
    for number in range(100, 100 + 2 * UNPROVEN_MAX):
        relay.act(relay.state.connected(number, "10.0.0.66:5000", 0.0))
    relay.act(relay.state.connected(1, "10.0.0.9:5000", 0.0))
    relay.out.clear()  # what strangers were told
    monkeypatch.setattr(relay.state, "connected", lambda *given: [])
    talk(relay, observer)
    assert bytes(observer.log) == LOG[:40_000]


def test_observers_have_so_many_places() -> None:
    relay, observer = Relay(), Observer()
    for number in range(100, 100 + SESSIONS_MAX):
        relay.act(relay.state.connected(number, "10.0.0.9:5000", 0.0))
        relay.state.sessions[number].proven, relay.state.sessions[number].replica = True, f"r{number}"
    relay.out.clear()
    talk(relay, observer)
    assert relay.closed[-1].reason is Reason.TOO_MANY
    assert not observer.log


def test_an_observer_that_retention_has_overtaken_is_told() -> None:
    relay, observer = Relay(), Observer()
    talk(relay, observer)
    relay.log = RelayLog(SEGMENT, SEGMENT + 100, SEGMENT)
    assert relay.state.next_batch(1) is None
    relay.act(relay.state.tick(1.0))
    assert relay.closed[-1].reason is Reason.OFFSET_GONE


def test_a_log_of_rocketmq_is_handed_on_in_its_protocol() -> None:
    """It has no epochs; the observer says where it ends, and gets what follows, as from a RocketMQ slave."""
    relay = Relay()
    relay.record = ReplicaRecord("10.0.0.2:1#s")
    relay.act(relay.state.connected(1, "10.0.0.9:1", 0.0))
    relay.act(relay.state.receive(1, ha_classic.encode_report(100), 0.0))
    relay.pump()
    got = ClassicSlaveState(log=LogEnds(0, 100, 100, SEGMENT), terms=SlaveTerms("g", observer=True), now=0.0)
    got.connected(1, 0.0)
    appended = b"".join(
        bytes(one.data) for frame in relay.out for one in got.receive(frame, 1.0) if isinstance(one, Append)
    )
    assert appended == LOG[100:40_000]
    relay.act(relay.state.receive(1, ha_classic.encode_report(-5), 1.0))
    assert not relay.closed, "later reports are signs of life"


@pytest.mark.parametrize("key", ["", "secret"])
def test_a_classic_peer_is_refused_where_epochs_or_a_key_say_more(key: str) -> None:
    relay = Relay(key)
    if key:
        relay.record = ReplicaRecord("10.0.0.2:1#s")
    relay.act(relay.state.connected(1, "10.0.0.9:1", 0.0))
    relay.act(relay.state.receive(1, ha_classic.encode_report(0), 0.0))
    assert [close.reason for close in relay.closed] == [Reason.NOT_MASTER]
