"""The ROCKETMQ binary command header (RocketMQSerializable).

| size      | field                                                                   |
|-----------|-------------------------------------------------------------------------|
| 2         | code                                                                    |
| 1         | language, number of LanguageCode                                        |
| 2         | version                                                                 |
| 4         | opaque                                                                  |
| 4         | flag                                                                    |
| 4 + n     | remark, 0 = none                                                        |
| 4 + n     | ext block: repeated (2 + n key, 4 + n value); an empty value is absent  |

Codes above 32767 don't fit: such requests exist only with JSON headers.
"""

import struct
from collections.abc import Mapping

from tandemq.codec.header_json import EXT_FIELDS_MAX, HeaderFields
from tandemq.errors import MalformedHeader

LANGUAGES = (
    "JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS", "RUST",
    "NODE_JS",
)  # fmt: skip
"""LanguageCode by number."""

_NUMBER_OF = {name: number for number, name in enumerate(LANGUAGES)}
_OTHER = _NUMBER_OF["OTHER"]
_FIXED = struct.Struct(">hbhiii")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


def decode(header: bytes) -> HeaderFields:
    """Returns the fields of a header; raises MalformedHeader for lengths that leave it or text that is no UTF-8."""
    if len(header) < _FIXED.size + 4:
        raise MalformedHeader(f"binary header of {len(header)} bytes, at least {_FIXED.size + 4} expected")
    code, language, version, opaque, flag, remark_size = _FIXED.unpack_from(header)
    position = _FIXED.size
    try:
        remark, position = _text(header, position, remark_size, len(header) - 4)
        (ext_size,) = _INT32.unpack_from(header, position)
        position += 4
        if ext_size < 0 or position + ext_size > len(header):
            raise MalformedHeader(f"ext block of {ext_size} bytes in a binary header of {len(header)}")
        ext = _decode_ext(header, position, position + ext_size)
    except UnicodeDecodeError as error:
        raise MalformedHeader(f"binary header with text that is no UTF-8: {error}") from None
    name = LANGUAGES[language] if 0 <= language < len(LANGUAGES) else "OTHER"
    return code, name, version, opaque, flag, remark or None, ext


def _decode_ext(header: bytes, position: int, stop: int) -> dict[str, str]:
    ext: dict[str, str] = {}
    while position < stop:
        if position + 2 > stop:
            raise MalformedHeader(f"ext block ends inside a key length at byte {position}")
        (key_size,) = _INT16.unpack_from(header, position)
        key, position = _text(header, position + 2, key_size, stop - 4)
        (value_size,) = _INT32.unpack_from(header, position)
        value, position = _text(header, position + 4, value_size, stop)
        if key and value:
            if len(ext) >= EXT_FIELDS_MAX:
                raise MalformedHeader(f"more than {EXT_FIELDS_MAX} ext fields")
            ext[key] = value
    return ext


def _text(header: bytes, position: int, size: int, stop: int) -> tuple[str, int]:
    end = position + size
    if size < 0 or end > stop:
        raise MalformedHeader(f"text of {size} bytes at byte {position} leaves the binary header of {len(header)}")
    return header[position:end].decode(), end


def encode(
    code: int, language: str, version: int, opaque: int, flag: int, remark: str | None, ext: Mapping[str, str]
) -> bytes:
    """Returns the header as Java writes it; raises MalformedHeader for a code that needs JSON."""
    if not -32768 <= code <= 32767:
        raise MalformedHeader(f"code {code} does not fit a binary header (16 bits): send it with a JSON header")
    remark_bytes = (remark or "").encode()
    block = bytearray()
    for name, value in ext.items():
        key, text = name.encode(), value.encode()
        block += _INT16.pack(len(key)) + key + _INT32.pack(len(text)) + text
    number = _NUMBER_OF.get(language, _OTHER)
    fixed = _FIXED.pack(code, number, version, opaque, flag, len(remark_bytes))
    return b"".join((fixed, remark_bytes, _INT32.pack(len(block)), block))
