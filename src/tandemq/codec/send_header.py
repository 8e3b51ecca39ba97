"""The ext fields of a send, decoded in one pass: the hot path of the broker.

SEND_MESSAGE and SEND_REPLY_MESSAGE carry the long names, their V2 forms and SEND_BATCH_MESSAGE one letter each (a..n).
`decode_send_request` reads the whole JSON header straight into a struct, without an ext dict. What it refuses (numbers
where text is due, null, binary headers) goes through the general decoder and `send_header_of`.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

import msgspec

from tandemq.codec import header_binary, header_json
from tandemq.codec.bodies import bool_of, int_of
from tandemq.codec.codes import RequestCode
from tandemq.codec.frame import JSON
from tandemq.errors import MalformedBody, MalformedHeader

SHORT_NAMES = {
    "producerGroup": "a", "topic": "b", "defaultTopic": "c", "defaultTopicQueueNums": "d", "queueId": "e",
    "sysFlag": "f", "bornTimestamp": "g", "flag": "h", "properties": "i", "reconsumeTimes": "j", "unitMode": "k",
    "maxReconsumeTimes": "l", "batch": "m", "bname": "n",
}  # fmt: skip
"""Long name -> the letter of the V2 header."""

SHORT_CODES = frozenset(
    (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2)
)


Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class SendHeader(msgspec.Struct, gc=False):
    """A send's ext fields by their long names; `version` is the sender's, from the command header."""

    producerGroup: str
    topic: str
    defaultTopic: str
    defaultTopicQueueNums: Int32
    queueId: Int32
    sysFlag: Int32
    bornTimestamp: Int64
    flag: Int32
    properties: str = ""
    reconsumeTimes: Int32 = 0
    unitMode: bool = False
    maxReconsumeTimes: Int32 | None = None
    batch: bool = False
    bname: str = ""
    version: int = 0


class _LongRequest(msgspec.Struct, gc=False):
    code: int
    extFields: SendHeader
    opaque: int = 0
    flag: int = 0
    version: int = 0


def _short_request() -> Any:
    """Builds the request with the one-letter names, because a subclass does not rename the fields it inherits."""
    fields = [
        (f.name, f.type, f.default) if f.default is not msgspec.NODEFAULT else (f.name, f.type)
        for f in msgspec.structs.fields(SendHeader)
    ]
    short = msgspec.defstruct("ShortSendHeader", fields, bases=(SendHeader,), rename=SHORT_NAMES, gc=False)
    return msgspec.defstruct("ShortRequest", [("extFields", short)], bases=(_LongRequest,), gc=False)


# Not strict: "4" is read as 4, "true" and "1" as true.
_decode_long = msgspec.json.Decoder(_LongRequest, strict=False).decode
_decode_short = msgspec.json.Decoder(_short_request(), strict=False).decode


SEND_DECODE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What a decoder from `send_decoder` raises for a header it can't take in one pass."""


def topic_field(code: int) -> str:
    """Returns the name of the ext field in which a send of this code has its topic."""
    return SHORT_NAMES["topic"] if code in SHORT_CODES else "topic"


def send_decoder(code: int) -> Callable[[bytes], Any]:
    """Returns header -> request (opaque, flag, version, extFields: SendHeader); it refuses what is unusual."""
    return _decode_short if code in SHORT_CODES else _decode_long


def decode_send_request(header: bytes, code: int) -> tuple[int, int, SendHeader]:
    """Returns (opaque, flag, send header) of a JSON header known to be of `code`."""
    try:
        found = send_decoder(code)(header)
    except SEND_DECODE_ERRORS:
        _, _, version, opaque, flag, _, ext = header_json.decode(header)
        return opaque, flag, send_header_of(ext, code, version)
    send: SendHeader = found.extFields
    send.version = found.version
    return found.opaque, found.flag, send


def decode_send(header: bytes, code: int, encoding: int = JSON) -> SendHeader:
    """Returns the send header; raises MalformedHeader when a required field is missing or no number."""
    if encoding == JSON:
        return decode_send_request(header, code)[2]
    _, _, version, _, _, _, ext = header_binary.decode(header)
    return send_header_of(ext, code, version)


def send_header_of(ext: dict[str, str], code: int, version: int) -> SendHeader:
    """Makes the send header from an ext dict, for example of a binary header."""
    found = {long: ext.get(short) for long, short in SHORT_NAMES.items()} if code in SHORT_CODES else ext
    required = ("producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag")
    for name in (*required, "bornTimestamp", "flag"):
        if found.get(name) is None:
            raise MalformedHeader(f"send without {name}")
    return SendHeader(
        producerGroup=found["producerGroup"] or "",
        topic=found["topic"] or "",
        defaultTopic=found["defaultTopic"] or "",
        defaultTopicQueueNums=_number(found, "defaultTopicQueueNums"),
        queueId=_number(found, "queueId"),
        sysFlag=_number(found, "sysFlag"),
        bornTimestamp=_number(found, "bornTimestamp", bits=64),
        flag=_number(found, "flag"),
        properties=found.get("properties") or "",
        reconsumeTimes=_number(found, "reconsumeTimes"),
        unitMode=bool_of(found, "unitMode"),
        maxReconsumeTimes=_number(found, "maxReconsumeTimes") if found.get("maxReconsumeTimes") else None,
        batch=bool_of(found, "batch"),
        bname=found.get("bname") or "",
        version=version,
    )


def _number(found: Mapping[str, str | None], name: str, bits: int = 32) -> int:
    """Returns a number that fits its field of the record; 0 when it is absent."""
    try:
        value = int_of(found, name)
    except MalformedBody as error:
        raise MalformedHeader(str(error)) from None
    if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
        raise MalformedHeader(f"{name}={str(value)[:40]}: more than {bits} bits")
    return value


def send_ext(send: SendHeader, *, short: bool) -> dict[str, str]:
    """Returns the ext fields to write for a send (client side)."""
    found = {
        "producerGroup": send.producerGroup,
        "topic": send.topic,
        "defaultTopic": send.defaultTopic,
        "defaultTopicQueueNums": str(send.defaultTopicQueueNums),
        "queueId": str(send.queueId),
        "sysFlag": str(send.sysFlag),
        "bornTimestamp": str(send.bornTimestamp),
        "flag": str(send.flag),
        "properties": send.properties,
        "reconsumeTimes": str(send.reconsumeTimes),
        "unitMode": "true" if send.unitMode else "false",
        "batch": "true" if send.batch else "false",
    }
    if send.maxReconsumeTimes is not None:
        found["maxReconsumeTimes"] = str(send.maxReconsumeTimes)
    if send.bname:
        found["bname"] = send.bname
    return {SHORT_NAMES[name]: value for name, value in found.items()} if short else found
