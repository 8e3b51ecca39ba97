"""Nobody without the key changes anything on the HA port: by speaking first, by listening in, or from the middle."""

import json
import struct
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.security.two_ends import MasterEnd, SlaveEnd, introduce, resummed, talk, unsealed

from tandemq.codec import ha_session as ha
from tandemq.codec.ha_reasons import Reason
from tandemq.codec.ha_seal import Handshake
from tandemq.codec.ha_session import Ack, FrameType, Hello, Members, Refuse, SessionReader, Start, Take, Welcome
from tandemq.errors import CodecError, CorruptLog
from tandemq.formats.crc import crc32
from tandemq.replication import replica_file
from tandemq.replication.epochs import ReplicaRecord
from tandemq.replication.mastership.core import Phase
from tandemq.replication.mastership.housekeeping import PROOF_WAIT
from tandemq.replication.served import UNPROVEN_MAX
from tandemq.store.disk import FileDisk

KEY = "a key that nobody guesses"
LOG = bytes(range(256)) * 40
HUGE = (1 << 63, 1 << 64, 1 << 70)


def hello(replica: str = "x#1", number: int = 1, proof: str = "") -> Hello:
    return Hello("g", replica, proof, "", 1 << 16, 0, 0, 0, number, "id", [], [])


STRANGERS_FRAMES = {
    "REFUSE of a higher epoch": ha.encode_control(Refuse("higher-epoch", "step down", (1 << 63) - 1)),
    "HELLO": ha.encode_control(hello(number=99)),
    "HELLO with a guessed proof": ha.encode_control(hello(number=99, proof=ha.key_proof("", "slave", "n", "", "x#1"))),
    "START": ha.encode_control(Start(1, 0, 0)),
    "ACK": ha.encode_ack(1, 0, 0, 0),
    "DATA": ha.encode_data_header(1, 0, 0, b"bytes") + b"bytes",
    "heartbeat": ha.encode_data_header(99, 0, 0, b""),
    "WELCOME": ha.encode_control(Welcome("m", True, 99, "id", 0, 0, 0, [], [], [])),
    "TAKE": ha.encode_control(Take(99, 0, 10)),
    "MEMBERS": ha.encode_control(Members(["x"], ["x"])),
}


@pytest.mark.parametrize("greets", [False, True], ids=["at once", "after a greeting"])
@pytest.mark.parametrize("frame", STRANGERS_FRAMES.values(), ids=STRANGERS_FRAMES)
def test_no_frame_changes_a_master_before_the_key_is_proven(frame: bytes, greets: bool) -> None:
    master = MasterEnd(KEY, LOG)
    record = master.state.record
    master.connect()
    if greets:
        master.hear(ha.encode_control(ha.Preamble(2, "n" * 32)))
    master.hear(frame)
    assert master.changed == []
    assert (master.state.phase, master.state.record) == (Phase.OPEN, record)
    introduce(master, SlaveEnd(KEY), session=2)


def test_a_refusal_before_the_hello_changes_nothing_without_a_key_either() -> None:
    master = MasterEnd("", LOG)
    master.connect()
    master.hear(ha.encode_control(ha.Preamble(1, "n")) + STRANGERS_FRAMES["REFUSE of a higher epoch"])
    assert master.changed == []
    assert master.state.phase is Phase.OPEN


def test_a_refusal_with_the_key_still_ends_a_reign() -> None:
    """The counterpart: one who belongs to the group and has promised a higher number is heard; it is asked again."""
    master, slave = MasterEnd(KEY, LOG), SlaveEnd(KEY)
    introduce(master, slave)
    slave.state.core.send(out := [], Refuse("higher-epoch", "another one reigns", 77), 0.0)
    slave.act(out)
    talk(master, slave)
    assert master.state.number > 77


# --- epochs have 63 bits ----------------------------------------------------------------------------------------------


def raw(kind: FrameType, message: dict[str, Any]) -> bytes:
    payload = json.dumps(message).encode()
    return ha._header(int(kind), len(payload), crc32(payload)) + payload


@pytest.mark.parametrize("number", HUGE)
def test_epochs_and_offsets_beyond_63_bits_are_no_frames(number: int) -> None:
    frames = [
        raw(FrameType.REFUSE, {"reason": "lost", "text": "", "number": number}),
        raw(FrameType.START, {"number": 1, "offset": number, "durable": 0}),
        raw(FrameType.HELLO, {**msgspec.to_builtins(hello()), "promised_number": number}),
        raw(FrameType.HELLO, {**msgspec.to_builtins(hello()), "history": [[number, "a", 0]]}),
        raw(FrameType.CHALLENGE, {"version": 1, "nonce": "n", "proof": "p", "number": number, "id": "i"}),
    ]
    for frame in frames:
        with pytest.raises(CodecError):
            list(SessionReader().feed(frame))


@pytest.mark.parametrize("at", range(4))
def test_binary_frames_are_held_to_63_bits_too(at: int) -> None:
    numbers = [1, 1, 1, 1]
    numbers[at] = 1 << 63
    ack = struct.pack(">QQQQ", *numbers)
    data = struct.pack(">QQQ", *numbers[: max(3, at)][:3])
    with pytest.raises(CodecError):
        list(SessionReader().feed(ha._header(FrameType.ACK, len(ack), crc32(ack)) + ack))
    if at < 3:
        with pytest.raises(CodecError):
            list(SessionReader().feed(ha._header(FrameType.DATA, len(data), crc32(data)) + data))


@pytest.mark.parametrize("number", [-1, *HUGE])
@pytest.mark.parametrize("field", ["promised_number", "campaigned", "confirmed", "before_number", "history"])
def test_a_record_with_an_epoch_beyond_63_bits_is_damaged(tmp_path: Path, field: str, number: int) -> None:
    disk = FileDisk(1)
    replica_file.save(disk, tmp_path, ReplicaRecord("10.0.0.1:1#m"))
    sealed = json.loads((tmp_path / replica_file.FILE_NAME).read_text())
    content = {**sealed["content"], field: [[number, "a", 0]] if field == "history" else number}
    text = json.dumps(content)
    (tmp_path / replica_file.FILE_NAME).write_text(f'{{"content":{text},"crc":{crc32(text.encode())}}}')
    with pytest.raises(CorruptLog, match=r"replica\.json is damaged"):
        replica_file.load(disk, tmp_path)


# --- a man in the middle ----------------------------------------------------------------------------------------------


def test_both_prove_the_key_and_the_log_arrives() -> None:
    master, slave = MasterEnd(KEY, LOG), SlaveEnd(KEY)
    introduce(master, slave)
    assert slave.log == LOG
    master.append(b"more")
    master.stream()
    talk(master, slave)
    assert slave.log == LOG + b"more"
    assert master.state.sessions[1].received == len(LOG) + 4


@pytest.mark.parametrize("field", ["number", "id", "nonce", "version"])
def test_nothing_of_a_challenge_can_be_exchanged_on_the_way(field: str) -> None:
    master, slave = MasterEnd(KEY), SlaveEnd(KEY)
    master.connect()
    slave.connect()
    for frame in slave.takes():
        master.hear(frame)
    [challenge] = master.takes()
    told = json.loads(unsealed(challenge)[1])
    told[field] = told[field] + 1 if isinstance(told[field], int) else "0" * 32
    slave.hear(resummed(challenge, json.dumps(told).encode()))
    if field == "version":  # says nothing that the proof does not: both ends seal
        return
    assert [one.reason for one in slave.closed] == [Reason.KEY_REFUSED]
    assert slave.changed == []


def changed_hello(payload: bytes) -> bytes:
    return json.dumps({**json.loads(payload), "promised_number": 9, "end": 5}).encode()


def changed_welcome(payload: bytes) -> bytes:
    return json.dumps({**json.loads(payload), "history": [], "start_empty_at": 0}).encode()


def changed_data(payload: bytes) -> bytes:
    return payload[:-1] + bytes([payload[-1] ^ 1])


def moved_data(payload: bytes) -> bytes:
    """The same log bytes with another confirmed offset: readers would see what is not safe yet."""
    return payload[:16] + struct.pack(">Q", 1 << 40) + payload[24:]


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        (FrameType.HELLO, changed_hello),
        (FrameType.WELCOME, changed_welcome),
        (FrameType.DATA, changed_data),
        (FrameType.DATA, moved_data),
        (FrameType.ACK, changed_data),
        (FrameType.START, changed_data),
        (FrameType.REGISTER, changed_data),
    ],
)
def test_a_frame_changed_on_the_way_ends_the_session_and_changes_nothing_else(kind: FrameType, change: Any) -> None:
    master, slave = MasterEnd(KEY, LOG), SlaveEnd(KEY)
    master.connect()
    slave.connect()
    met = False
    for _ in range(20):
        for end, other in ((slave.takes(), master), (None, slave)):
            if end is None:
                if 1 in master.out and 1 in master.state.sessions:
                    master.stream()
                end = master.takes()
            for frame in end:
                found, payload = unsealed(frame)
                if found == kind and not met:
                    met = True
                    master.decisions.clear()
                    slave.decisions.clear()
                    frame = resummed(frame, change(payload))
                    (other.hear)(frame)
                    assert other.changed in ([], [one for one in other.changed if type(one).__name__ == "Discard"])
                    assert other.closed
                    return
                (other.hear)(frame)
    pytest.fail(f"no {kind.name} was seen")


def sealed_stream() -> tuple[MasterEnd, SlaveEnd, list[bytes]]:
    """A session that stands, and three frames of the master that the slave has not got yet."""
    master, slave = MasterEnd(KEY, LOG), SlaveEnd(KEY)
    introduce(master, slave)
    frames = []
    for data in (b"first", b"second", b"third"):
        master.append(data)
        master.stream()
        frames += master.takes()
    slave.decisions.clear()
    return master, slave, frames


@pytest.mark.parametrize("order", [[0, 0], [1], [0, 2], [1, 0]], ids=["repeated", "dropped", "gap", "reordered"])
def test_frames_can_not_be_repeated_dropped_or_reordered(order: list[int]) -> None:
    _, slave, frames = sealed_stream()
    for number in order:
        slave.hear(frames[number])
    assert slave.closed
    good = 1 if order[0] == 0 else 0
    assert slave.log == LOG + [b"", b"first"][good]


def test_a_heartbeat_can_not_be_dropped_or_repeated() -> None:
    """They have the same offsets: only the count tells one from the next."""
    for times in (0, 2):
        master, slave = MasterEnd(KEY, LOG), SlaveEnd(KEY)
        introduce(master, slave)
        master.act(master.state.tick(6.0))
        [beat] = master.takes()
        master.act(master.state.tick(12.0))
        [second] = master.takes()
        for frame in [beat] * times + [second]:
            slave.hear(frame)
        assert slave.closed


def test_frames_of_another_session_or_direction_do_not_fit() -> None:
    master, slave = MasterEnd(KEY, LOG), SlaveEnd(KEY)
    introduce(master, slave)
    other = SlaveEnd(KEY, record=ReplicaRecord("10.0.0.3:1#t"))
    introduce(master, other, session=2, peer="10.0.0.3:5000")
    master.append(b"fresh")
    master.stream(1)
    master.stream(2)
    for_one, for_other = master.takes(1), master.takes(2)
    other.hear(for_one[0])
    assert other.closed
    master.hear(for_other[0], 2)
    assert any(close.session == 2 for close in master.closed)


def test_who_knows_everything_but_the_key_proves_nothing() -> None:
    """A stranger that learned every nonce and epoch seals with keys from another key."""
    master = MasterEnd(KEY)
    master.connect()
    master.hear(ha.encode_control(ha.Preamble(2, "n" * 32)))
    challenge = json.loads(unsealed(master.takes()[0])[1])
    guess = Handshake("another", "g", "n" * 32, challenge["nonce"], challenge["number"], challenge["id"])
    master.hear(ha.sealed(ha.encode_control(hello(number=challenge["number"])), guess.seals()[1]))
    assert [one.reason for one in master.closed] == [Reason.KEY_REFUSED]
    assert master.changed == []


@pytest.mark.parametrize(("masters", "slaves"), [(KEY, ""), ("", KEY), (KEY, "another")])
def test_ends_with_other_keys_part_and_both_say_why(masters: str, slaves: str) -> None:
    master, slave = MasterEnd(masters, LOG), SlaveEnd(slaves)
    master.connect()
    slave.connect()
    talk(master, slave)
    assert [one.reason for one in slave.closed] == [Reason.KEY_REFUSED]
    assert [one.reason for one in master.state.departures.values()] == [Reason.KEY_REFUSED]
    assert master.changed == slave.changed == []


def test_asking_again_in_a_session_that_stands_is_sealed_as_well() -> None:
    """A master that campaigns challenges its slaves a second time, within the session."""
    master, slave = MasterEnd(KEY, LOG), SlaveEnd(KEY)
    master.connect()
    slave.connect()
    for frame in slave.takes():
        master.hear(frame)
    master.state.followers.challenge(out := [], master.state.sessions[1], 0.0)
    master.act(out)
    first, second = master.takes()
    assert not first[3] & 128
    assert second[3] & 128
    slave.hear(first + second)
    assert not slave.closed
    talk(master, slave)
    assert slave.log == LOG


# --- silent sockets ---------------------------------------------------------------------------------------------------


def test_silent_sockets_do_not_keep_a_slave_out() -> None:
    master = MasterEnd(KEY, LOG, sessions_max=2)
    for number in range(10 * UNPROVEN_MAX):
        master.connect(100 + number, f"10.9.9.9:{number}")
    assert len(master.state.sessions) == UNPROVEN_MAX
    introduce(master, SlaveEnd(KEY))
    introduce(master, SlaveEnd(KEY, record=ReplicaRecord("10.0.0.3:1#t")), session=2, peer="10.0.0.3:5000")
    master.act(master.state.tick(PROOF_WAIT))
    assert sorted(master.state.sessions) == [1, 2]
    assert master.state.next_deadline(0.0) <= PROOF_WAIT


def test_the_one_that_goes_is_of_the_host_that_has_most() -> None:
    master = MasterEnd(KEY)
    master.connect(1, "10.0.0.2:5000")
    for number in range(UNPROVEN_MAX):
        master.connect(100 + number, f"10.9.9.9:{number}")
    assert 1 in master.state.sessions
    assert 100 not in master.state.sessions


def test_dribbling_bytes_buy_no_time() -> None:
    master = MasterEnd(KEY)
    master.connect()
    frame = ha.encode_control(ha.Preamble(2, "n" * 32))
    for number, byte in enumerate(frame[:-1]):
        master.hear(bytes([byte]), now=PROOF_WAIT * number / len(frame))
    master.act(master.state.tick(PROOF_WAIT))
    assert [one.reason for one in master.closed] == [Reason.SILENT]


def test_slaves_beyond_the_limit_are_told_when_they_have_proven_themselves() -> None:
    master = MasterEnd(KEY, LOG, sessions_max=1)
    introduce(master, SlaveEnd(KEY))
    late = SlaveEnd(KEY, record=ReplicaRecord("10.0.0.3:1#t"))
    master.connect(2, "10.0.0.3:5000")
    late.connect()
    talk(master, late, 2)
    assert [one.reason for one in late.closed] == [Reason.TOO_MANY]
    introduce(master, SlaveEnd(KEY), session=3)  # the first one again takes its own place


def test_little_is_kept_for_one_who_has_said_nothing_yet() -> None:
    master = MasterEnd(KEY)
    master.connect()
    payload = json.dumps({"version": 2, "nonce": "n" * ha.PREAMBLE_SIZE_MAX}).encode()
    master.hear(ha._header(FrameType.PREAMBLE, len(payload), crc32(payload)))
    assert [one.reason for one in master.closed] == [Reason.CORRUPT]


# --- classic peers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "allowed", "served"), [("", None, True), (KEY, None, False), ("", False, False), (KEY, True, True)]
)
def test_classic_slaves_are_served_where_the_operator_says_so(key: str, allowed: bool | None, served: bool) -> None:
    master = MasterEnd(key, LOG, classic_peers=allowed)
    master.connect()
    master.hear(bytes(8))
    assert (master.state.streaming.next_batch(1, 0.0) is not None) == served
    if not served:
        assert [one.reason for one in master.closed] == [Reason.CLASSIC_REFUSED]


def test_an_ack_event_is_still_what_it_was() -> None:
    [ack] = SessionReader().feed(ha.encode_ack(1, 2, 3, 4))
    assert ack == Ack(1, 2, 3, 4)


@pytest.mark.parametrize("key", ["", "secret"])
def test_packed_frames_bring_the_same_log_and_are_sealed_alike(key: str) -> None:
    master, slave = MasterEnd(key, b"log bytes " * 100_000), SlaveEnd(key, compression="zstd")
    introduce(master, slave)
    assert slave.log == master.log
    master.append(b"more " * 1000)
    master.stream()
    (frame,) = [frame for frame in master.takes() if frame[2] == ha.FrameType.PACKED]
    assert bool(frame[3] & 128) == bool(key)
    slave.hear(frame)
    assert slave.log == master.log
    if key:
        slave.hear(frame)
        assert slave.closed, "the same frame again must end the session"
