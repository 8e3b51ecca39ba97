"""Fuzzers of the parsers that face the network, the disk and the HA port.

    python -m tests.security.fuzz                     every parser, 1,000,000 inputs each: the nightly run
    python -m tests.security.fuzz --count 10000 json  less, or only some

Inputs grow from a corpus: real frames, headers, bodies and records, and bytes that real RocketMQ programs wrote, from
the golden data. Each is changed a few times: bits, cuts, splices with another input, sizes and numbers at their limits,
and words of a dictionary that the parser knows. A parser passes when it returns, or refuses in its own words; anything
else is a finding, with the seed and the number that make it again. Whether a fuzzer finds anything is tested by
planting bugs (test_fuzzers.py).
"""

import argparse
import gzip
import json
import random
import struct
import sys
import tarfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path

import msgspec

from tandemq.backup import manifest
from tandemq.broker.sql92 import compile_sql
from tandemq.broker.subscriptions import parse_subscription
from tandemq.codec import fastjson, ha_classic, ha_session, header_binary, header_json
from tandemq.codec.command import Command, decode_command, encode_request
from tandemq.codec.frame import JSON, ROCKETMQ, FrameReader
from tandemq.codec.heartbeat import ConsumerGroupInfo, Heartbeat, Subscription, decode_heartbeat, encode_heartbeat
from tandemq.codec.properties import properties_of
from tandemq.codec.register import decode_registration, encode_registration
from tandemq.codec.table_text import table_of
from tandemq.errors import TandemError
from tandemq.formats.batch import encode_batch, split_batch
from tandemq.formats.compression import compress, decompress
from tandemq.formats.record import parse_record
from tandemq.formats.replica_record import confirmed_offset
from tandemq.model.message import COMPRESSED, decode_properties
from tandemq.model.topic import DataVersion, TopicConfig
from tandemq.remoting.access.plain import parse_yaml
from tandemq.replication import replica_file
from tandemq.replication.epochs import Epoch, History, Promise, ReplicaRecord

GOLDEN = Path(__file__).parents[1] / "golden"
GOLDEN_SIZE_MAX = 4096
"""Of a golden file only its beginning: small inputs are changed where it matters more often."""

Parse = Callable[[bytes], object]

SIZES = (-1, 0, 1, 2, 255, 256, 65535, 65536, (1 << 31) - 1, -(1 << 31))
WIDE = (-1, 0, 1, (1 << 63) - 1, -(1 << 63))
NUMBERS = (b"-1", b"0", b"2147483648", b"9223372036854775808", b"18446744073709551616", b"1e999", b"-0.0", b"9" * 60)


@dataclass(frozen=True)
class Target:
    """One parser, real inputs of it, and words that mean something to it."""

    parse: Parse
    corpus: Sequence[bytes]
    words: Sequence[bytes] = ()


@dataclass(frozen=True)
class Finding:
    number: int
    data: bytes
    error: BaseException

    def __str__(self) -> str:
        return f"input {self.number}: {type(self.error).__name__}: {self.error} for {self.data[:200]!r}"


def inputs(target: Target, seed: int, count: int) -> Iterator[bytes]:
    """The same inputs for the same seed."""
    chance = random.Random(seed)
    words = [*target.words, *NUMBERS]
    for _ in range(count):
        data = bytearray(chance.choice(target.corpus))
        for _ in range(chance.choice((1, 1, 1, 2, 3, 6))):
            _change(data, chance, target.corpus, words)
        yield bytes(data)


def _change(data: bytearray, chance: random.Random, corpus: Sequence[bytes], words: Sequence[bytes]) -> None:
    at = chance.randrange(len(data) + 1)
    kind = chance.randrange(10)
    if kind == 0 and data:
        data[at % len(data)] ^= 1 << chance.randrange(8)
    elif kind == 1:
        del data[at : at + chance.choice((1, 2, 4, 8, len(data)))]
    elif kind == 2:
        data[at : at + chance.choice((0, 1, 4))] = chance.choice(words)
    elif kind == 3:
        data[at : at + 4] = struct.pack(">i", chance.choice(SIZES))
    elif kind == 4:
        data[at : at + 8] = struct.pack(">q", chance.choice(WIDE))
    elif kind == 5:
        other = chance.choice(corpus)
        start = chance.randrange(len(other) + 1)
        data[at:at] = other[start : start + chance.randrange(1, 64)]
    elif kind == 6:
        _replace_a_word(data, chance, words)
    elif kind == 7:
        data[at:at] = chance.choice(words) * chance.choice((2, 3, 50))
    elif kind == 8:
        data[at : at + 1] = bytes([chance.choice((0, 1, 0x7F, 0x80, 0xC0, 0xED, 0xFF))])
    else:
        data[at : at + 1] = chance.randbytes(1)


def _replace_a_word(data: bytearray, chance: random.Random, words: Sequence[bytes]) -> None:
    """A word of the dictionary, or a number, where a number stood: structure stays, meaning changes."""
    places = [place for place, byte in enumerate(data) if 0x30 <= byte <= 0x39]
    if not places:
        return
    start = end = chance.choice(places)
    while end < len(data) and 0x30 <= data[end] <= 0x39:
        end += 1
    data[start:end] = chance.choice(words)


def findings(target: Target, seed: int, count: int) -> Iterator[Finding]:
    """What the parser does not survive."""
    for number, data in enumerate(inputs(target, seed, count)):
        try:
            target.parse(data)
        except TandemError:
            pass
        except Exception as error:
            yield Finding(number, data, error)


# --- parsers ----------------------------------------------------------------------------------------------------------


def _frames(data: bytes) -> None:
    reader = FrameReader()
    for frame in reader.feed(data):
        decode_command(frame)
    if reader.error is not None:
        raise reader.error


def _json(data: bytes) -> None:
    """What is read can be written again, or it would be kept and never saved."""
    fastjson.dumps({"value": fastjson.loads(data, tolerant_size_max=1 << 16)})


def _session(data: bytes) -> None:
    reader = ha_session.SessionReader()
    for event in reader.feed(data):
        if isinstance(event, ha_classic.Head):
            struct.pack(">qqq", event.epoch, event.offset, event.confirmed)
        elif isinstance(event, ha_session.Refuse | ha_session.Start | ha_session.Take):
            struct.pack(">q", event.number)


def _classic(data: bytes) -> None:
    for _ in ha_classic.TransferReader().feed(data):
        pass
    ha_classic.ReportReader().feed(data)


def _record(data: bytes) -> None:
    message = parse_record(data)
    message.body, message.properties  # noqa: B018  # read as a consumer does


@cache
def _golden_files(version: str) -> dict[str, bytes]:
    """The beginnings of files that a real broker wrote."""
    with tarfile.open(GOLDEN / f"rocketmq-{version}" / "stores.tar.xz") as archive:
        found = {}
        for member in archive:
            wanted = member.isfile() and ("/config/" in member.name or member.name.endswith("commitlog/" + "0" * 20))
            if wanted and (file := archive.extractfile(member)) is not None:
                found[member.name] = file.read(GOLDEN_SIZE_MAX)
    return found


def _golden_json() -> list[bytes]:
    files = _golden_files("5.3.3")
    return [data for name, data in files.items() if name.endswith(".json") and 2 < len(data) < GOLDEN_SIZE_MAX]


def _golden_records() -> list[bytes]:
    log = next(data for name, data in _golden_files("5.3.3").items() if "commitlog" in name)
    records, position = [], 0
    while position + 4 < len(log):
        size = int.from_bytes(log[position : position + 4], "big")
        if not 91 <= size <= len(log) - position:
            break
        records.append(log[position : position + size])
        position += size
    return records


def _golden_stream() -> list[bytes]:
    with gzip.open(GOLDEN / "rocketmq-4.9.7" / "ha-stream.jsonl.gz", "rt") as lines:
        return [bytes.fromhex(json.loads(line)["hex"])[:GOLDEN_SIZE_MAX] for line in islice(lines, 12)]


def _headers(encoding: int) -> list[bytes]:
    ext = {"topic": "T", "queueId": "3", "brokerName": "b", "bornTimestamp": "1700000000000"}
    commands = [Command(code, ext, opaque=7, remark="r") for code in (10, 11, 34, 103, 310)]
    return [FrameReader().feed(encode_request(command, encoding))[0][1] for command in commands]


def _sessions() -> list[bytes]:
    item = ha_session.EpochItem(1, "aa", 0)
    controls = [
        ha_session.Preamble(1, "n1"),
        ha_session.Challenge(1, "n2", "proof", 7, "id"),
        ha_session.Hello("g", "r", "proof", "10.0.0.1:1", 1024, 0, 5000, 4000, 7, "id", [item], ["a"]),
        ha_session.Welcome("m", True, 7, "id", 0, 9000, 0, [item], ["r"], ["r"]),
        ha_session.Start(7, 5000, 4000),
        ha_session.Refuse("disk-full", "no room", 7),
        ha_session.Take(7, 100, 200),
    ]
    frames = [ha_session.encode_control(control) for control in controls]
    data = b"log bytes"
    frames += [ha_session.encode_data_header(7, 5000, 4500, data) + data, ha_session.encode_ack(7, 1, 2, 3)]
    return [*frames, b"".join(frames)]


def _sealed(parse: Parse) -> Parse:
    """As {"content": …, "crc": …} with the right checksum: files of ours are read no further without."""
    return lambda data: parse(b'{"content":%b,"crc":%d}' % (data, zlib.crc32(data)))


def _content(file: bytes) -> bytes:
    return bytes(msgspec.json.decode(file, type=dict[str, msgspec.Raw])["content"])


def _manifest() -> bytes:
    part = manifest.SegmentPart(4096, "commitlog/00000000000000004096", 4096, 1)
    table = manifest.FilePart("config/topics.json", "tables/1/config/topics.json", 3, 4)
    return _content(manifest.encode(manifest.Manifest(8192, 1, 4096, 200, 20, 100, "1s 5s", [part], [table])))


def _record_of_a_replica() -> bytes:
    record = ReplicaRecord("r", History((Epoch(1, "aa", 0), Epoch(2, "bb", 9))), Promise(2, "bb"), confirmed=5)
    return _content(replica_file.encode(record))


def _journal(data: bytes) -> None:
    lines = data.split(b"\n")
    summed = b"\n".join(b"%08x %b" % (zlib.crc32(line), line) for line in lines) + b"\n"
    table_of(b"{}", summed)


def _inflated(data: bytes) -> None:
    """The body's first byte says how it is compressed, so that each way is tried."""
    flag = COMPRESSED | (data[0] % 4 << 8 if data else 0)
    decompress(data[1:], flag, size_max=1 << 16)


def _summed(parse: Parse) -> Parse:
    """Checksums are mended, or no change behind them would ever be looked at."""

    def mended(data: bytes) -> object:
        if len(data) > 16:
            payload = data[16:]
            head = data[:4] + struct.pack(">I", len(payload)) + zlib.crc32(payload).to_bytes(4, "big")
            data = head + zlib.crc32(head).to_bytes(4, "big") + payload
        return parse(data)

    return mended


_ACCOUNTS = b"accounts:\n- accessKey: a\n  secretKey: secret\n  admin: true\n  topicPerms: [t=PUB|SUB]\n"
_JSON_WORDS = (
    b"{",
    b"}",
    b"[",
    b"]",
    b'"',
    b":",
    b",",
    b"null",
    b"true",
    b"\\ud800",
    b"\\u0000",
    b"{{",
    b'"":',
    b"\xff",
)
_HEARTBEAT = encode_heartbeat(
    Heartbeat(
        client_id="c@1",
        producer_groups=("p",),
        consumers=(ConsumerGroupInfo(group="g", subscriptions=(Subscription(topic="t", expression="A||B"),)),),
    )
)
_REGISTRATION = encode_registration([TopicConfig(name=f"topic-{n}") for n in range(3)], DataVersion(0, 1, 2))
_TABLE = b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:{"minOffset":0,"maxOffset":9}},0:[1,2.5,null]}'
_INFLATED = (
    struct.pack(">i", 2) + b"{}" + struct.pack(">ii", 1, 21) + b"t 4 4 6 SINGLE_TAG {}" + struct.pack(">i", 2) + b"[]"
)


def targets() -> dict[str, Target]:
    """Every parser by name."""
    frames = [encode_request(Command(310, {"a": "T", "b": "1"}, b"body"), encoding) for encoding in (JSON, ROCKETMQ)]
    return {
        "frames": Target(_frames, frames, (b"\0\0\0\x10", b"\x01\0\0\x08")),
        "json-header": Target(header_json.decode, _headers(JSON), (*_JSON_WORDS, b'"extFields"', b'"code"')),
        "binary-header": Target(header_binary.decode, _headers(ROCKETMQ), (b"\0\0\0\0", b"\xff\xff\xff\xff")),
        "json": Target(_json, [_TABLE, _HEARTBEAT, _REGISTRATION, *_golden_json()], _JSON_WORDS),
        "heartbeat": Target(decode_heartbeat, [_HEARTBEAT], (*_JSON_WORDS, b'"subscriptionDataSet"', b'"groupName"')),
        "registration": Target(
            lambda data: decode_registration(data, compressed=False, peer_version=407), [_REGISTRATION], _JSON_WORDS
        ),
        "compressed-registration": Target(
            lambda data: decode_registration(zlib.compress(data, 1), compressed=True, peer_version=407),
            [_INFLATED],
            (b" ", b"SINGLE_TAG", b"{}", b"\0\0\0\x15"),
        ),
        "ha-session": Target(_summed(_session), _sessions(), (*_JSON_WORDS, b"\xf4\x7a", b'"number":')),
        "ha-classic": Target(_classic, [struct.pack(">qi", 100, 5) + b"hello", *_golden_stream()]),
        "record": Target(_record, _golden_records(), (b"\xda\xa3\x20\xa7", b"\xcb\xd4\x31\x94")),
        "sql92": Target(
            lambda data: compile_sql(data.decode("utf-8", "replace")).matches({"a": "1", "b": "x"}),
            [b"a > 5 AND b IN ('x','y') OR NOT (c IS NULL)", b"a BETWEEN 1 AND 9 OR b CONTAINS 'x' AND -a = +1.5e3"],
            (b"AND ", b"OR ", b"NOT ", b"(", b")", b"'", b"''", b"IS NULL", b"BETWEEN ", b"/*", b"--", b"<>", b"TRUE"),
        ),
        "subscription": Target(
            lambda data: parse_subscription("t", data.decode("utf-8", "replace")).codes,
            [b"TagA || TagB||TagC", b"TagA||*"],
            (b"||", b"|", b" ", b"*"),
        ),
        "properties-file": Target(
            properties_of,
            [b"# a\nbrokerName=b\nlistenPort = 10911\nlong=a\\\n  b\n"],
            (b"\\u", b"\\", b"=", b":", b"\r"),
        ),
        "batch": Target(
            split_batch,
            [encode_batch([(1, b"body", b"KEYS\x01k\x02"), (0, b"", b"")])],
            (b"\0\0\0\x15",),
        ),
        "compressed-body": Target(
            _inflated,
            [bytes([way]) + compress(b"body" * 50, method)[0] for way, method in enumerate((0, 0x100, 0x200, 0x300))],
            (b"\x78\x9c", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18"),
        ),
        "backup-list": Target(
            _sealed(lambda data: manifest.decode(data, "backup.json")), [_manifest()], (*_JSON_WORDS, b"..", b"/")
        ),
        "replica-record": Target(
            _sealed(lambda data: (replica_file.decode(data, "replica.json"), confirmed_offset(data))),
            [_record_of_a_replica()],
            (*_JSON_WORDS, b'"history":', b'"confirmed":'),
        ),
        "table-journal": Target(
            _journal,
            [b'{"base":%d,"depth":1}\n{"topicConfigTable":{"t":{"a":1},"u":null}}' % zlib.crc32(b"{}")],
            (*_JSON_WORDS, b'"depth":', b'"base":'),
        ),
        "accounts": Target(
            lambda data: parse_yaml(data.decode("utf-8", "replace"), "acl.yml"), [_ACCOUNTS], (b"- ", b": ")
        ),
        "properties": Target(decode_properties, [b"KEYS\x01k\x02TAGS\x01t\x02"], (b"\x01", b"\x02", b"\x01\x02")),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="parsers; all if none is named")
    parser.add_argument("--count", type=int, default=1_000_000, help="inputs per parser")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="the same seed gives the same inputs")
    given = parser.parse_args()
    known, failed = targets(), 0
    for name in given.names or known:
        began, found = time.perf_counter(), list(findings(known[name], given.seed, given.count))
        rate = given.count / (time.perf_counter() - began)
        print(f"{name}: {given.count} inputs, {rate:.0f}/s, seed {given.seed}: {len(found)} findings", flush=True)
        for finding in found[:3]:
            print(f"  {finding}")
        failed += bool(found)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
