"""The JSON command header.

{"code":30,"extFields":{"queueId":"0"},"flag":0,"language":"JAVA","opaque":5,"remark":"...","version":407}

Written compact, members in alphabetical order, ext values as strings, as Java writes it. Read tolerantly: ext values of
any scalar type (C++ and ali-ons send numbers and booleans), null = absent, numbers as strings, unknown members, raw
control characters inside strings. The first decoder below takes what every Java client sends in one pass; whatever it
refuses gets a second, slower look.
"""

import json
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from tandemq.errors import MalformedHeader

LANGUAGE = "PYTHON"
PROTOCOL_VERSION = 407
"""What we announce: V4_9_7. Java clients need >= V4_1_0 for SQL92 filters; > V5_3_1 would invite GO_AWAY replies."""

EXT_FIELDS_MAX = 256
"""No request has more than about 30; a map beyond this is an attack on memory, not a request."""

HeaderFields = tuple[int, str, int, int, int, str | None, dict[str, str]]
"""code, language, version, opaque, flag, remark, ext"""

_Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]


class _Header(msgspec.Struct, gc=False):
    code: _Int32
    opaque: _Int32 = 0
    flag: _Int32 = 0
    version: _Int32 = 0
    language: str = "OTHER"
    remark: str | None = None
    extFields: dict[str, str] | None = None


_decode_header = msgspec.json.Decoder(_Header).decode
_encode_text = msgspec.json.Encoder().encode


def decode(header: bytes) -> HeaderFields:
    """Returns the fields of a header; raises MalformedHeader if it is no command."""
    try:
        found = _decode_header(header)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _decode_tolerantly(header)
    ext = found.extFields
    if ext is None:
        ext = {}
    elif len(ext) > EXT_FIELDS_MAX:
        raise MalformedHeader(f"{len(ext)} ext fields, the limit is {EXT_FIELDS_MAX}")
    return found.code, found.language, found.version, found.opaque, found.flag, found.remark, ext


def _decode_tolerantly(header: bytes) -> HeaderFields:
    try:
        found: Any = json.loads(header.decode("utf-8"), strict=False)
        if b"\\u" in header:
            json.dumps(found, ensure_ascii=False).encode()  # half of a UTF-16 pair can be spelt, and never be written
    except (ValueError, RecursionError) as error:
        raise MalformedHeader(f"the header is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise MalformedHeader(f"the header is a JSON {type(found).__name__}, an object was expected")
    ext = found.get("extFields") or {}
    if not isinstance(ext, dict):
        raise MalformedHeader(f"extFields is a JSON {type(ext).__name__}, an object was expected")
    if len(ext) > EXT_FIELDS_MAX:
        raise MalformedHeader(f"{len(ext)} ext fields, the limit is {EXT_FIELDS_MAX}")
    remark = found.get("remark")
    return (
        _int32(found, "code"),
        str(found.get("language") or "OTHER"),
        _int32(found, "version", 0),
        _int32(found, "opaque", 0),
        _int32(found, "flag", 0),
        None if remark is None else str(remark),
        {name: scalar_text(name, value) for name, value in ext.items() if value is not None},
    )


def _int32(found: dict[str, Any], name: str, default: int | None = None) -> int:
    value: Any = found.get(name, default)
    try:
        if isinstance(value, (bool, float)) or not -(2**31) <= int(value) < 2**31:
            raise ValueError
    except (TypeError, ValueError):
        raise MalformedHeader(f"{name}={str(value)[:40]!r}: a 32-bit number was expected") from None
    return int(value)


def scalar_text(name: str, value: Any) -> str:
    """Returns the text Java would see for a JSON scalar: booleans lower case, numbers in decimal."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value)
    raise MalformedHeader(f"ext field {name[:40]!r} is a JSON {type(value).__name__}, a scalar was expected")


def encode(
    code: int, language: str, version: int, opaque: int, flag: int, remark: str | None, ext: Mapping[str, str]
) -> bytes:
    """Returns the header of a request, ext names sorted so that equal commands have equal bytes."""
    found: dict[str, Any] = {"code": code}
    if ext:
        found["extFields"] = dict(sorted(ext.items()))
    found["flag"] = flag
    found["language"] = language
    found["opaque"] = opaque
    if remark is not None:
        found["remark"] = remark
    found["version"] = version
    return _encode_text(found)


_LANGUAGE_PART = f',"flag":1,"language":"{LANGUAGE}","opaque":'.encode()
_VERSION_PART = f',"version":{PROTOCOL_VERSION}}}'.encode()
_REMARK_PART = b',"remark":'


def encode_response(opaque: int, code: int, remark: str | None, ext: Mapping[str, str] | None) -> bytes:
    """Returns the header of a response; the parts that never change are not encoded again."""
    fields = _encode_text(ext) if ext else b"{}"
    if remark is None:
        return b'{"code":%d,"extFields":%b%b%d%b' % (code, fields, _LANGUAGE_PART, opaque, _VERSION_PART)
    text = _encode_text(remark)
    return b'{"code":%d,"extFields":%b%b%d%b%b%b' % (
        code, fields, _LANGUAGE_PART, opaque, _REMARK_PART, text, _VERSION_PART,
    )  # fmt: skip
