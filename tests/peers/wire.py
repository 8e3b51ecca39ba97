"""One remoting request by hand, so that the harness depends on no client, ours least of all."""

import json
import socket
import struct
from typing import Any


def request(code: int, fields: dict[str, str], body: bytes = b"") -> bytes:
    """A request's frame, with a JSON header."""
    header = {"code": code, "flag": 0, "language": "JAVA", "opaque": 1, "version": 401, "extFields": fields}
    encoded = json.dumps(header).encode()
    return struct.pack(">ii", 4 + len(encoded) + len(body), len(encoded)) + encoded + body


def read_frame(link: socket.socket) -> tuple[dict[str, Any], bytes]:
    """The next frame of a connection: header and body."""
    size, header_size = struct.unpack(">ii", _read(link, 8))
    frame = _read(link, size - 4)
    header_size &= 0xFFFFFF
    return json.loads(frame[:header_size]), frame[header_size:]


def _read(link: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        chunk = link.recv(size - len(data))
        if not chunk:
            raise ConnectionResetError("the server closed the connection")
        data += chunk
    return bytes(data)


def ask(
    address: str, code: int, fields: dict[str, str], body: bytes = b"", timeout: float = 5
) -> tuple[dict[str, Any], bytes]:
    """Sends one request on a connection of its own; the answer's header and body."""
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout) as link:
        link.sendall(request(code, fields, body))
        return read_frame(link)


def route_exists(namesrv: str, topic: str) -> bool:
    """Whether the name server knows a route to the topic; False while it does not even answer."""
    try:
        return bool(ask(namesrv, 105, {"topic": topic})[0]["code"] == 0)
    except (OSError, ValueError):
        return False


def create_topic(broker: str, topic: str, queues: int) -> None:
    """Creates or updates a topic on one broker."""
    fields = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": str(queues), "writeQueueNums": str(queues)}
    fields |= {"perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
    answer, _ = ask(broker, 17, fields)
    if answer["code"] != 0:
        raise RuntimeError(f"creating {topic}: {answer}")
