"""From a frame to the handler of its code, and from what the handler does to an answer.

There are two kinds of handler:

* `SendHandler(connection, opaque, flag, header, body)` takes sends, whose ext fields are decoded into a struct;
* `Handler(connection, command)` takes every other request and may be `async def`.

A handler returns the encoded reply, a Command, or None if it answers later with `connection.send` or never. One-way
requests are never answered, not even with an error. A code without a handler is answered with code 3
(REQUEST_CODE_NOT_SUPPORTED); the connection stays open.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from tandemq.codec.codes import ResponseCode, code_name
from tandemq.codec.command import (
    ONEWAY_FLAG,
    RESPONSE_FLAG,
    Command,
    decode_command,
    encode_request,
    encode_response,
)
from tandemq.codec.frame import Frame, FrameReader
from tandemq.codec.send_header import SEND_DECODE_ERRORS, SendHeader, send_decoder, send_header_of, topic_field
from tandemq.errors import CodecError, ReplyError, TandemError
from tandemq.remoting.access.needs import Rule, rule_of
from tandemq.remoting.connection import Connection
from tandemq.remoting.turns import LoopTurns

log = logging.getLogger("tandemq.remoting")

Reply = Command | bytes | None
Handler = Callable[[Connection, Command], Reply | Awaitable[Reply]]
SendHandler = Callable[[Connection, int, int, SendHeader, memoryview], Reply]
OnError = Callable[[Exception], tuple[int, str]]
Admit = Callable[[Connection, Command, Rule | None, int], None]
"""Raises ReplyError when the request's signature or its account's permissions don't allow it. It is given what the
handler declares (None if it declares nothing) and the size of the request in bytes."""
Audit = Callable[[Connection, Command, Rule, int, str], None]
"""Notes an act of an administrator with the code and the remark of its answer."""

Divert = Callable[[Connection, Command], Awaitable[Reply] | None]
"""Takes a request while the gate refuses; returns who answers it, or None to let the handler refuse it."""


class Gate(Protocol):
    """Says whether this server does at present what its handlers are for."""

    @property
    def refusal(self) -> ReplyError | None: ...


class OpenGate:
    """Of a server that always does."""

    refusal: ReplyError | None = None


_NO_HANDLER = Rule((), is_audited=False)
"""Of a code that nobody answers: whoever has an account is told so."""

_PREFIX_SIZE = 12
"""Enough of a JSON header to know that it begins with the code of a send."""


def default_on_error(error: Exception) -> tuple[int, str]:
    """Returns (code, remark) for servers without a mapping of their own: a reply's code, or SYSTEM_ERROR."""
    if isinstance(error, ReplyError):
        return error.code, error.remark
    return ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}"


class RequestDispatcher:
    """The table code -> handler of one server or client. Called with every frame of its connections."""

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        *,
        default: Handler | None = None,
        send_handlers: Mapping[int, SendHandler] | None = None,
        on_error: OnError = default_on_error,
        admit: Admit | None = None,
        audit: Audit | None = None,
        before: Callable[[], None] | None = None,
        gate: Gate | None = None,
        divert: Divert | None = None,
        turns: LoopTurns | None = None,
    ) -> None:
        self._turns = turns
        self._gate: Gate = gate or OpenGate()
        self._divert = divert
        self._before = before
        """Called before every request but the sends that `send_handlers` take: whatever those put off is done."""
        self.handlers = {int(code): handler for code, handler in handlers.items()}
        self._default = default
        self._send = {int(code): handler for code, handler in (send_handlers or {}).items()}
        self._on_error = on_error
        self._admit = admit
        self._audit = audit
        # A JSON header that starts with its code (Java, C++, ours) finds its handler without being decoded first.
        self._send_by_prefix: dict[bytes, tuple[int, Callable[[bytes], Any], SendHandler]] = {
            (b'{"code":%d,"extFields":' % code)[:_PREFIX_SIZE]: (code, send_decoder(code), handler)
            for code, handler in self._send.items()
        }
        self.requests = 0
        """Requests taken, for metrics."""
        self.failures = 0
        """Requests answered because of an exception."""

    def __call__(self, connection: Connection, frame: Frame) -> None:
        _, header, body = frame
        found = self._send_by_prefix.get(header[:_PREFIX_SIZE])
        if found is None or found[0] in connection.excluded_codes or self._gate.refusal is not None:
            self._dispatch(connection, decode_command(frame), len(header) + len(body))
            return
        code, decode, handler = found
        try:
            request = decode(header)
        except SEND_DECODE_ERRORS:  # numbers as text, null, a binary header by bad luck, ...: legal, only slower
            self._dispatch(connection, decode_command(frame), len(header) + len(body))
            return
        opaque, flag, send = request.opaque, request.flag, request.extFields
        send.version = request.version
        if self._admit is not None and not self._is_admitted(connection, frame, code, send.topic):
            return
        self.requests += 1
        turns = self._turns
        began = turns.clock() if turns is not None else 0.0
        try:
            reply = handler(connection, opaque, flag, send, body)
        except Exception as error:
            self._fail(connection, opaque, flag, code, error)
            return
        finally:
            if turns is not None:
                took = turns.clock() - began
                connection.spent += took
                turns.ran(code, took)
        if reply is not None and not flag & ONEWAY_FLAG:
            connection.send(reply if isinstance(reply, bytes) else _encode_reply(reply, opaque))

    def _is_admitted(self, connection: Connection, frame: Frame, code: int, topic: str) -> bool:
        """Returns whether a send may be handled as its struct says; else it has been answered.

        The signature covers all ext fields, so they are decoded for it a second time.
        """
        assert self._admit is not None
        _, header, body = frame
        command, rule = decode_command(frame), rule_of(self._send[code])
        if command.code != code or command.ext.get(topic_field(code)) != topic:  # two readers must not disagree
            self._dispatch(connection, command, len(header) + len(body))
            return False
        try:
            self._admit(connection, command, rule, len(header) + len(body))
        except Exception as error:
            self.requests += 1
            self._fail_command(connection, command, rule, error)
            return False
        return True

    def _dispatch(self, connection: Connection, command: Command, size: int) -> None:
        if command.flag & RESPONSE_FLAG:
            connection.answered(command)
            return
        self.requests += 1
        code = command.code
        if self._before is not None and code not in self._send:
            self._before()
        handler: Any = None
        if code not in connection.excluded_codes:
            handler = self._send.get(code) or self.handlers.get(code, self._default)
        rule = rule_of(handler) if handler is not None else _NO_HANDLER
        turns = self._turns
        began = turns.clock() if turns is not None else 0.0
        try:
            if self._admit is not None:
                self._admit(connection, command, rule, size)
            reply = None
            if self._divert is not None and self._gate.refusal is not None:
                reply = self._divert(connection, command)
            if reply is None:
                reply = self._call(handler, connection, command)
        except Exception as error:
            self._fail_command(connection, command, rule, error)
            return
        finally:
            if turns is not None:
                took = turns.clock() - began
                connection.spent += took
                turns.ran(code, took)
        if reply is None:
            return
        if isinstance(reply, (bytes, Command)):
            self._answer(connection, command, rule, reply)
        else:
            self._start(connection, command, rule, reply)

    def run(self, connection: Connection, command: Command) -> Any:
        """Returns what the handler of a request answers that was admitted before, or elsewhere, for its caller."""
        handler: Any = self._send.get(command.code) or self.handlers.get(command.code)
        rule = rule_of(handler) if handler is not None else _NO_HANDLER
        if command.caller is not None:
            if rule is None:
                raise ReplyError(ResponseCode.NO_PERMISSION, f"nothing is declared about {code_name(command.code)}")
            for need in rule.needs(command):
                command.caller.require(need)
        return self._call(handler, connection, command)

    def _call(self, handler: Any, connection: Connection, command: Command) -> Any:
        code = command.code
        if handler is None:
            raise ReplyError(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {code} not supported")
        if code in self._send:
            send = send_header_of(command.ext, code, command.version)
            return handler(connection, command.opaque, command.flag, send, memoryview(command.body))
        return handler(connection, command)

    def _answer(self, connection: Connection, command: Command, rule: Rule | None, reply: Command | bytes) -> None:
        encoded = reply if isinstance(reply, bytes) else _encode_reply(reply, command.opaque)
        if self._audit is not None and rule is not None and rule.is_audited:
            code, remark = _outcome(encoded)
            self._audit(connection, command, rule, code, remark)
        if not command.flag & ONEWAY_FLAG:
            connection.send(encoded)

    def _start(self, connection: Connection, command: Command, rule: Rule | None, reply: Awaitable[Reply]) -> None:
        """Runs an asynchronous handler to its end, unless the connection has too many of them."""
        if len(connection.tasks) >= connection.config.requests_in_progress_max:
            if asyncio.iscoroutine(reply):
                reply.close()
            remark = "[OVERLOAD]system busy, start flow control for a while"
            self._fail_command(connection, command, rule, ReplyError(ResponseCode.SYSTEM_BUSY, remark))
            return

        async def finish() -> None:
            try:
                result = await reply
            except Exception as error:
                self._fail_command(connection, command, rule, error)
                return
            if result is not None:
                self._answer(connection, command, rule, result)

        task = asyncio.get_running_loop().create_task(finish())
        connection.tasks.add(task)
        task.add_done_callback(connection.tasks.discard)

    def _fail_command(self, connection: Connection, command: Command, rule: Rule | None, error: Exception) -> None:
        if self._audit is not None and rule is not None and rule.is_audited:
            code, remark = self._on_error(error)
            self._audit(connection, command, rule, code, remark)
        self._fail(connection, command.opaque, command.flag, command.code, error)

    def _fail(self, connection: Connection, opaque: int, flag: int, code: int, error: Exception) -> None:
        self.failures += 1
        if not isinstance(error, (TandemError, ValueError, KeyError)):
            log.error("request failed code=%s peer=%s", code_name(code), connection.peer, exc_info=error)
        elif not isinstance(error, (ReplyError, CodecError)):
            log.warning("request failed code=%s peer=%s error=%r", code_name(code), connection.peer, str(error))
        if not flag & ONEWAY_FLAG:
            reply_code, remark = self._on_error(error)
            connection.send(encode_response(opaque, reply_code, remark))


def _outcome(encoded: bytes) -> tuple[int, str]:
    """Returns code and remark of an encoded answer, for the audit log."""
    frames = FrameReader(len(encoded) + 1, len(encoded)).feed(encoded)
    answer = decode_command(frames[0])
    return answer.code, answer.remark or ""


def _encode_reply(reply: Command, opaque: int) -> bytes:
    reply.opaque = opaque
    reply.flag |= RESPONSE_FLAG
    if not reply.ext:
        return encode_response(opaque, reply.code, reply.remark, None, reply.body)
    return encode_request(reply)
