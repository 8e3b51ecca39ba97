"""One remoting request by hand, so that the harness depends on no client, ours least of all."""

import json
import socket
import struct
from typing import Any


def ask(
    address: str, code: int, fields: dict[str, str], body: bytes = b"", timeout: float = 5
) -> tuple[dict[str, Any], bytes]:
    """Sends a request with a JSON header; the answer's header and body."""
    header = {"code": code, "flag": 0, "language": "JAVA", "opaque": 1, "version": 401, "extFields": fields}
    encoded = json.dumps(header).encode()
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout) as link, link.makefile("rb") as answer:
        link.sendall(struct.pack(">ii", 4 + len(encoded) + len(body), len(encoded)) + encoded + body)
        size, header_size = struct.unpack(">ii", answer.read(8))
        frame = answer.read(size - 4)
    header_size &= 0xFFFFFF
    return json.loads(frame[:header_size]), frame[header_size:]


def route_exists(namesrv: str, topic: str) -> bool:
    """Whether the name server knows a route to the topic; False while it does not even answer."""
    try:
        return bool(ask(namesrv, 105, {"topic": topic})[0]["code"] == 0)
    except (OSError, struct.error, ValueError):
        return False


def create_topic(broker: str, topic: str, queues: int) -> None:
    """Creates or updates a topic on one broker."""
    fields = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": str(queues), "writeQueueNums": str(queues)}
    fields |= {"perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
    answer, _ = ask(broker, 17, fields)
    if answer["code"] != 0:
        raise RuntimeError(f"creating {topic}: {answer}")
