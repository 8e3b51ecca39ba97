"""Where errors meet the wire: exception -> (response code, remark).

A field that is missing or no number is answered SYSTEM_ERROR, as upstream's null pointer is, but the remark names it.
"""

import logging
import struct
from collections.abc import Mapping

from tandemq.codec.codes import ResponseCode
from tandemq.codec.ext_fields import boolean as bool_field
from tandemq.codec.ext_fields import number as int_field
from tandemq.codec.ext_fields import text as text_field
from tandemq.errors import (
    CodecError,
    ConfigError,
    ConnectionLost,
    CorruptRecord,
    DiskFull,
    LogPoisoned,
    MessageTooLarge,
    OffsetOutOfRange,
    ReplicationError,
    ReplyError,
    RequestTimeout,
    StoreError,
    TandemError,
)
from tandemq.replication.acks import PutStatus

__all__ = ["STATUS_CODES", "bool_field", "int_field", "reply_of", "text_field"]

log = logging.getLogger(__name__)

# The first match counts, so the special ones come first.
_CODES: tuple[tuple[type[TandemError], ResponseCode], ...] = (
    (DiskFull, ResponseCode.SERVICE_NOT_AVAILABLE),
    (LogPoisoned, ResponseCode.SERVICE_NOT_AVAILABLE),
    (MessageTooLarge, ResponseCode.MESSAGE_ILLEGAL),
    (OffsetOutOfRange, ResponseCode.SYSTEM_ERROR),
    (StoreError, ResponseCode.SYSTEM_ERROR),
    (CorruptRecord, ResponseCode.MESSAGE_ILLEGAL),
    (CodecError, ResponseCode.SYSTEM_ERROR),
    (ConfigError, ResponseCode.INVALID_PARAMETER),
    (ReplicationError, ResponseCode.SLAVE_NOT_AVAILABLE),
    (ConnectionLost, ResponseCode.SYSTEM_ERROR),
    (RequestTimeout, ResponseCode.SYSTEM_ERROR),
)

STATUS_CODES: Mapping[PutStatus, ResponseCode] = {
    PutStatus.PUT_OK: ResponseCode.SUCCESS,
    PutStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
    PutStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
}


def reply_of(error: BaseException) -> tuple[int, str]:
    """Returns (response code, remark) for an exception that came out of a handler."""
    if isinstance(error, ReplyError):
        return error.code, error.remark
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code, str(error)
    if isinstance(error, (ValueError, struct.error, OverflowError)):
        return ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}"
    if not isinstance(error, TandemError):
        log.error("a handler failed", exc_info=error)
    return ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}"
