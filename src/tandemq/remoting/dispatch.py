"""From a frame to the handler of its code, and from what the handler does to an answer.

Three kinds of handler, by how much is decoded for them:

* `Handler(connection, command)`: everything else; may be `async def`;
* `SendHandler(connection, opaque, flag, header, body)`: sends, whose ext fields are decoded straight into a struct;
* `RawHandler(connection, opaque, flag, header_bytes, body)`: decodes the JSON header itself.

A handler returns the encoded reply, a Command, or None for "answered later with connection.send, or never". One-way
requests are never answered, not even with an error. No handler: code 3, never a dropped connection.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from tandemq.codec import header_json
from tandemq.codec.codes import ResponseCode, code_name
from tandemq.codec.command import (
    ONEWAY_FLAG,
    RESPONSE_FLAG,
    Body,
    Command,
    decode_command,
    encode_request,
    encode_response,
)
from tandemq.codec.frame import JSON, Frame
from tandemq.codec.send_header import SEND_DECODE_ERRORS, SendHeader, send_decoder, send_header_of
from tandemq.errors import CodecError, ReplyError, TandemError
from tandemq.remoting.connection import Connection

log = logging.getLogger("tandemq.remoting")

Reply = Command | bytes | None
Handler = Callable[[Connection, Command], Reply | Awaitable[Reply]]
SendHandler = Callable[[Connection, int, int, SendHeader, memoryview], Reply]
RawHandler = Callable[[Connection, int, int, bytes, memoryview], Reply]
OnError = Callable[[Exception], tuple[int, str]]
Authenticate = Callable[[Connection, Command], None]
"""Raises ReplyError when the request's signature or its account's permissions don't allow it."""

_PREFIX_SIZE = 12
"""Enough of a JSON header to know that it begins with the code of a send."""


def default_on_error(error: Exception) -> tuple[int, str]:
    """(code, remark) where the owner brings no mapping of its own: the reply's code, or SYSTEM_ERROR with the text."""
    if isinstance(error, ReplyError):
        return error.code, error.remark
    return ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}"


class Dispatcher:
    """The table code -> handler of one server or client. Called with every frame of its connections."""

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        *,
        default: Handler | None = None,
        raw_handlers: Mapping[int, RawHandler] | None = None,
        send_handlers: Mapping[int, SendHandler] | None = None,
        on_error: OnError = default_on_error,
        authenticate: Authenticate | None = None,
        before: Callable[[], None] | None = None,
    ) -> None:
        self._before = before
        """Called before every request but the sends that `send_handlers` take: whatever those put off is done."""
        self.handlers = {int(code): handler for code, handler in handlers.items()}
        self._default = default
        self._raw = {int(code): handler for code, handler in (raw_handlers or {}).items()}
        self._send = {int(code): handler for code, handler in (send_handlers or {}).items()}
        self._on_error = on_error
        self._authenticate = authenticate
        # A JSON header that starts with its code (Java, C++, ours) finds its handler without being decoded first.
        # With access control every request is decoded, because the signature covers all ext fields.
        self._send_by_prefix: dict[bytes, tuple[int, Callable[[bytes], Any], SendHandler]] = {}
        if authenticate is None:
            self._send_by_prefix = {
                (b'{"code":%d,"extFields":' % code)[:_PREFIX_SIZE]: (code, send_decoder(code), handler)
                for code, handler in self._send.items()
            }
        self.requests = 0
        """Requests taken, for metrics."""
        self.failures = 0
        """Requests answered because of an exception."""

    def __call__(self, connection: Connection, frame: Frame) -> None:
        encoding, header, body = frame
        found = self._send_by_prefix.get(header[:_PREFIX_SIZE])
        if found is None or found[0] in connection.excluded_codes:
            self._dispatch(connection, decode_command(frame), header if encoding == JSON else None)
            return
        code, decode, handler = found
        try:
            request = decode(header)
        except SEND_DECODE_ERRORS:  # numbers as text, null, a binary header by bad luck, ...: legal, only slower
            self._dispatch(connection, decode_command(frame), header if encoding == JSON else None)
            return
        self.requests += 1
        opaque, flag, send = request.opaque, request.flag, request.extFields
        send.version = request.version
        try:
            reply = handler(connection, opaque, flag, send, body)
        except Exception as error:
            self._fail(connection, opaque, flag, code, error)
            return
        if reply is not None and not flag & ONEWAY_FLAG:
            connection.send(reply if isinstance(reply, bytes) else _encode_reply(reply, opaque))

    def _dispatch(self, connection: Connection, command: Command, json_header: bytes | None) -> None:
        if command.flag & RESPONSE_FLAG:
            connection.answered(command)
            return
        if self._before is not None:
            self._before()
        self.requests += 1
        code = command.code
        try:
            if self._authenticate is not None:
                self._authenticate(connection, command)
            reply = self._call(connection, command, json_header)
        except Exception as error:
            self._fail(connection, command.opaque, command.flag, code, error)
            return
        if reply is None:
            return
        if isinstance(reply, (bytes, Command)):
            if not command.flag & ONEWAY_FLAG:
                connection.send(reply if isinstance(reply, bytes) else _encode_reply(reply, command.opaque))
        else:
            self._start(connection, command, reply)

    def _call(self, connection: Connection, command: Command, json_header: bytes | None) -> Any:
        code = command.code
        if code not in connection.excluded_codes:
            if code in self._send:
                send = send_header_of(command.ext, code, command.version)
                return self._send[code](connection, command.opaque, command.flag, send, memoryview(command.body))
            if code in self._raw:
                if json_header is None:  # a binary header: raw handlers know one encoding
                    json_header = header_json.encode(
                        code, command.language, command.version, command.opaque, command.flag, None, command.ext
                    )
                body = memoryview(command.body)
                return self._raw[code](connection, command.opaque, command.flag, json_header, body)
            handler = self.handlers.get(code, self._default)
            if handler is not None:
                return handler(connection, command)
        raise ReplyError(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {code} not supported")

    def _start(self, connection: Connection, command: Command, reply: Awaitable[Reply]) -> None:
        """Runs an asynchronous handler to its end, unless the connection has too many of them."""
        if len(connection.tasks) >= connection.config.requests_in_progress_max:
            if asyncio.iscoroutine(reply):
                reply.close()
            remark = "[OVERLOAD]system busy, start flow control for a while"
            self._fail(
                connection, command.opaque, command.flag, command.code, ReplyError(ResponseCode.SYSTEM_BUSY, remark)
            )
            return
        opaque, flag, code = command.opaque, command.flag, command.code

        async def finish() -> None:
            try:
                result = await reply
            except Exception as error:
                self._fail(connection, opaque, flag, code, error)
                return
            if result is not None and not flag & ONEWAY_FLAG:
                connection.send(result if isinstance(result, bytes) else _encode_reply(result, opaque))

        task = asyncio.get_running_loop().create_task(finish())
        connection.tasks.add(task)
        task.add_done_callback(connection.tasks.discard)

    def _fail(self, connection: Connection, opaque: int, flag: int, code: int, error: Exception) -> None:
        self.failures += 1
        if not isinstance(error, (TandemError, ValueError, KeyError)):
            log.error("request failed code=%s peer=%s", code_name(code), connection.peer, exc_info=error)
        elif not isinstance(error, (ReplyError, CodecError)):
            log.warning("request failed code=%s peer=%s error=%r", code_name(code), connection.peer, str(error))
        if not flag & ONEWAY_FLAG:
            reply_code, remark = self._on_error(error)
            connection.send(encode_response(opaque, reply_code, remark))


def _encode_reply(reply: Command, opaque: int) -> bytes:
    reply.opaque = opaque
    reply.flag |= RESPONSE_FLAG
    if not reply.ext:
        return encode_response(opaque, reply.code, reply.remark, None, reply.body)
    return encode_request(reply)


def reply_body(command: Command, body: Body, ext: dict[str, str] | None = None) -> bytes:
    """SUCCESS with a body."""
    return encode_response(command.opaque, ResponseCode.SUCCESS, None, ext, body)
