"""A stored message as plain values, under the names upstream's Java client uses for them (MessageExt)."""

import hashlib
import ipaddress
from typing import Any

from tandemq.errors import CorruptRecord
from tandemq.formats.compression import decompress
from tandemq.model.message import UNIQUE_KEY, StoredMessage


def describe(message: StoredMessage) -> dict[str, Any]:
    """Returns one object of `tandemq store dump --json`. Length and SHA-256 are of the body before compression."""
    body, problem = message.body, ""
    try:
        body = decompress(message.body, message.sys_flag)
    except CorruptRecord as error:
        problem = str(error)
    found: dict[str, Any] = {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "physicalOffset": message.physical_offset,
        "storeSize": message.size,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "bornTimestamp": message.born_timestamp,
        "bornHost": host_text(message.born_host),
        "storeTimestamp": message.store_timestamp,
        "storeHost": host_text(message.store_host),
        "bodyCRC": message.body_crc,
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "msgId": message.properties.get(UNIQUE_KEY) or message.message_id,
        "bodyLength": len(body),
        "bodySha256": hashlib.sha256(body).hexdigest(),
        "properties": dict(sorted(message.properties.items())),
    }
    if problem:
        found["bodyProblem"] = problem
    return found


def host_text(host: bytes) -> str:
    """Returns `/10.0.0.1:10911`, as Java prints a socket address."""
    port = int.from_bytes(host[-4:], "big")
    if len(host) == 8:
        return f"/{'.'.join(str(part) for part in host[:4])}:{port}"
    groups = ipaddress.IPv6Address(host[:16]).exploded.split(":")
    return "/[" + ":".join(f"{int(group, 16):x}" for group in groups) + f"]:{port}"
