"""The frame of a send, made from a template: the pipelined producer's hot path.

What is the same in every send to one queue is encoded once; per message remain sysFlag, times, flag, properties and
opaque. The bytes are those of `encode_request` with the fields of `encode.send_fields` (a test compares them).
"""

import struct

import msgspec

from tandemq.client.encode import Outgoing
from tandemq.codec.codes import RequestCode
from tandemq.codec.frame import JSON
from tandemq.codec.header_json import LANGUAGE, PROTOCOL_VERSION
from tandemq.model.topic import AUTO_CREATE_TOPIC, QueueRef

_PREFIX = struct.Struct(">II")
_text = msgspec.json.Encoder().encode


class SendTemplate:
    """Encodes sends of one group to one queue."""

    __slots__ = ("_head", "_middle", "_tail")

    def __init__(self, group: str, queue: QueueRef, default_queues: int) -> None:
        self._head = b'{"code":%d,"extFields":{"a":%b,"b":%b,"c":%b,"d":"%d","e":"%d","f":"' % (
            RequestCode.SEND_MESSAGE_V2,
            _text(group),
            _text(queue.topic),
            _text(AUTO_CREATE_TOPIC),
            default_queues,
            queue.queue_id,
        )
        self._middle = b',"j":"0","k":"false","m":"false","n":%b},"flag":0,"language":"%b","opaque":' % (
            _text(queue.broker_name),
            LANGUAGE.encode(),
        )
        self._tail = b',"version":%d}' % PROTOCOL_VERSION

    def frame(self, item: Outgoing, now_ms: int, opaque: int) -> bytes:
        header = b'%b%d","g":"%d","h":"%d","i":%b%b%d%b' % (
            self._head,
            item.sys_flag,
            now_ms,
            item.flag,
            _text(item.properties),
            self._middle,
            opaque,
            self._tail,
        )
        body = item.body
        size = len(header)
        return b"".join((_PREFIX.pack(4 + size + len(body), JSON << 24 | size), header, body))
