"""The last lines of a server's audit log, kept in memory so that they can be asked for.

The log itself is whatever `auditLogPath` names; this is its end, bounded, since the start of the process.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from tandemq.codec.codes import ResponseCode, code_name
from tandemq.codec.command import Command
from tandemq.remoting.access import audit
from tandemq.remoting.access.needs import Rule
from tandemq.remoting.connection import Connection

KEPT_MAX = 500


class AuditTrail:
    """Writes each line to the log and keeps it for a while."""

    def __init__(self, wall_ms: Callable[[], int]) -> None:
        self._wall_ms = wall_ms
        self._kept: deque[dict[str, Any]] = deque(maxlen=KEPT_MAX)

    def note(self, connection: Connection, command: Command, rule: Rule, code: int, remark: str) -> None:
        audit.note(connection, command, rule, code, remark)
        caller = command.caller
        if caller is None and code != ResponseCode.SUCCESS:
            return  # who proves no account can't push out what others did
        self._kept.appendleft(
            {
                "atMs": self._wall_ms(),
                "who": caller.name if caller is not None else "",
                "from": connection.peer,
                "what": code_name(command.code),
                "fields": audit.described(command, rule),
                "ok": code == ResponseCode.SUCCESS,
                "outcome": "ok" if code == ResponseCode.SUCCESS else f"code {code}: {remark[: audit.VALUE_LENGTH_MAX]}",
            }
        )

    def newest(self, count_max: int) -> list[dict[str, Any]]:
        return list(self._kept)[: max(0, count_max)]
