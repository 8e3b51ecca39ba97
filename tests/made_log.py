"""Logs of random records: any mix of versions, hosts, bodies and properties."""

import random
from typing import Any

from tandemq.formats.compression import compress
from tandemq.formats.record import encode_record
from tandemq.model.message import COMPRESSION_LZ4, COMPRESSION_ZSTD, encode_properties

V4 = bytes([10, 0, 0, 9]) + (40000).to_bytes(4, "big")
V6 = bytes(range(16)) + (10911).to_bytes(4, "big")


def make_log(count: int, seed: int = 1, **fixed: Any) -> tuple[bytes, list[int]]:
    """A log of random records and where they begin."""
    rng, log, starts = random.Random(seed), bytearray(), []
    for n in range(count):
        body, flags = rng.randbytes(rng.choice((0, 10, 300))), 0
        method = rng.choice((None, None, 0, COMPRESSION_LZ4, COMPRESSION_ZSTD))
        if method is not None:
            body, flags = compress(body, method)
        values = {
            "topic": rng.choice(("orders", "payments", "t" * 200)),
            "born_host": rng.choice((V4, V6)),
            "store_host": rng.choice((V4, V6)),
            "properties": properties(rng, n),
            "body": body,
            "sys_flag": flags,
        } | fixed
        starts.append(len(log))
        log += encode_record(
            queue_id=n % 4, flag=rng.randint(-9, 9), queue_offset=n, physical_offset=len(log),
            born_timestamp=1_700_000_000_000 + n, store_timestamp=1_700_000_000_001 + n, reconsume_times=n % 3,
            prepared_transaction_offset=n * 7, **values,
        )  # fmt: skip
    return bytes(log), starts


def properties(rng: random.Random, n: int) -> bytes:
    regular = {"TAGS": f"tag{n % 3}", "KEYS": f"k{n} shared", "UNIQ_KEY": f"{n:032X}", "a-rather-long-name": "ü"}
    return rng.choice(
        (
            encode_properties(regular),
            encode_properties(regular)[:-1],  # the last separator missing
            b"",
            b"TAGS\x01\x02KEYS\x01k\x02",  # an empty value
            b"\x01v\x02x\x01y\x02",  # an empty name
            b"junk\x02a\x01b\x02",  # no name separator
            b"a\x01first\x02a\x01second\x02",  # the later one counts
            b"a\x01b\x01c\x02",  # a separator inside the value
            b"bad\x01\xff\xfe\x02",
            b"nul\x01\x00x\x02",
        )
    )
