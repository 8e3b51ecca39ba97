"""RemotingCommand: one request, one-way request or response, whichever header encoding it came in.

Servers always answer with JSON headers whose ext values are strings: the C++ client and ali-ons can't read binary
headers, Go refuses non-string ext values. What we read is taken in either encoding and any scalar type.
"""

from collections.abc import Mapping
from typing import Any

from tandemq.codec import header_binary, header_json
from tandemq.codec.frame import JSON, ROCKETMQ, Frame, encode_frame
from tandemq.codec.header_json import LANGUAGE, PROTOCOL_VERSION
from tandemq.errors import MalformedHeader, ReplyError

RESPONSE_FLAG = 1
ONEWAY_FLAG = 2

Body = bytes | memoryview


class Command:
    """A decoded command. `body` may be a view of the receive buffer: `bytes(command.body)` to keep it."""

    __slots__ = ("body", "caller", "code", "ext", "flag", "language", "opaque", "remark", "version")

    def __init__(
        self,
        code: int,
        ext: dict[str, str] | None = None,
        body: Body = b"",
        *,
        opaque: int = 0,
        flag: int = 0,
        language: str = LANGUAGE,
        version: int = PROTOCOL_VERSION,
        remark: str | None = None,
    ) -> None:
        self.code = code
        self.ext: dict[str, str] = {} if ext is None else ext
        self.body = body
        self.opaque = opaque
        """The sender's id of a request, repeated in its response; unique only per direction of a connection."""
        self.flag = flag
        self.language = language
        self.version = version
        """Ordinal of the sender's MQVersion: some answers depend on it."""
        self.remark = remark
        self.caller: Any = None
        """Who made the request, as the server found out (`remoting.access.needs.Caller`); None without access
        control."""

    @property
    def is_response(self) -> bool:
        return self.flag & RESPONSE_FLAG != 0

    @property
    def is_oneway(self) -> bool:
        """Tells whether it must not be answered, not even with an error."""
        return self.flag & ONEWAY_FLAG != 0

    def raise_for_code(self, *accepted: int) -> "Command":
        """Returns itself when the code is SUCCESS or one of `accepted`; raises ReplyError otherwise."""
        if self.code == 0 or self.code in accepted:
            return self
        raise ReplyError(self.code, self.remark or "the peer gave no reason")

    def __repr__(self) -> str:
        kind = "response" if self.is_response else "oneway" if self.is_oneway else "request"
        return f"Command({kind} code={self.code} opaque={self.opaque} ext={self.ext} body={len(self.body)} bytes)"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Command):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__ if name != "caller")

    __hash__ = None  # type: ignore[assignment]


def decode_command(frame: Frame) -> Command:
    """Returns the command in a frame; raises MalformedHeader when its header can't be read."""
    encoding, header, body = frame
    if encoding == JSON:
        fields = header_json.decode(header)
    elif encoding == ROCKETMQ:
        fields = header_binary.decode(header)
    else:
        raise MalformedHeader(f"header encoding {encoding}: 0 (JSON) or 1 (ROCKETMQ) expected")
    code, language, version, opaque, flag, remark, ext = fields
    command = Command.__new__(Command)
    command.code = code
    command.ext = ext
    command.body = body
    command.opaque = opaque
    command.flag = flag
    command.language = language
    command.version = version
    command.remark = remark
    command.caller = None
    return command


def encode_request(command: Command, encoding: int = JSON) -> bytes:
    """Returns the frame of any command, with flag and opaque as they are."""
    codec = header_json if encoding == JSON else header_binary
    header = codec.encode(
        command.code,
        command.language,
        command.version,
        command.opaque,
        command.flag,
        command.remark,
        command.ext,
    )
    return encode_frame(encoding, header, command.body)


def encode_response(
    opaque: int,
    code: int,
    remark: str | None = None,
    ext: Mapping[str, str] | None = None,
    body: Body = b"",
) -> bytes:
    """Returns the frame of a response: JSON header, `extFields` always present (C++ dereferences it unchecked)."""
    header = header_json.encode_response(opaque, code, remark, ext)
    return encode_frame(JSON, header, body)


def response_head(opaque: int, code: int, remark: str | None, ext: Mapping[str, str] | None, body_size: int) -> bytes:
    """Returns the frame of a response without its body, for answers whose body is written in pieces after it."""
    header = header_json.encode_response(opaque, code, remark, ext)
    return (4 + len(header) + body_size).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header
