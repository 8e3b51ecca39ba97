"""What the console asks a broker for besides its state: what happened to its replication, what administrators did."""

from collections.abc import Sequence
from typing import Any

import msgspec

from tandemq.broker.replies import int_field
from tandemq.broker.telemetry.events import EventLog
from tandemq.codec.codes import OperatorCode, ResponseCode
from tandemq.codec.command import Command, encode_response
from tandemq.remoting.access.needs import GET, needs, on_cluster
from tandemq.remoting.access.trail import AuditTrail
from tandemq.remoting.connection import Connection
from tandemq.remoting.dispatch import Handler

LINES_DEFAULT = 200


class EventHandlers:
    def __init__(self, events: EventLog, trail: AuditTrail) -> None:
        self._events = events
        self._trail = trail

    def handlers(self) -> dict[int, Handler]:
        return {OperatorCode.GET_EVENTS: self.events, OperatorCode.GET_AUDIT: self.acts}

    @needs(on_cluster(GET))
    def events(self, connection: Connection, command: Command) -> bytes:
        return _lines(command, "events", self._events.newest(_count(command)))

    @needs(on_cluster(GET))
    def acts(self, connection: Connection, command: Command) -> bytes:
        return _lines(command, "acts", self._trail.newest(_count(command)))


def _count(command: Command) -> int:
    return int_field(command.ext, "countMax", LINES_DEFAULT)


def _lines(command: Command, name: str, lines: Sequence[dict[str, Any]]) -> bytes:
    return encode_response(command.opaque, ResponseCode.SUCCESS, None, None, msgspec.json.encode({name: lines}))
