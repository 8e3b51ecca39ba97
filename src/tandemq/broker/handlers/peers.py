"""What other brokers of the group and name servers ask: HA info, delay offsets, timer and request-mode tables.

Slaves of RocketMQ 5 poll the timer and request-mode tables every few seconds whether or not the features are used; a
refusal would fill their logs, so tables that are always empty here are served empty. HA itself is replication's: two
callbacks bring its facts in and take an announced master out.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tandemq.broker.replies import int_field
from tandemq.broker.services.delay_schedule import DelaySchedule
from tandemq.broker.services.timers import TimerService
from tandemq.clock import Clock
from tandemq.codec import fastjson
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command, encode_response
from tandemq.formats.timer_checkpoint import TimerCheckpoint
from tandemq.remoting.access.needs import GET, UPDATE, needs, on_cluster
from tandemq.remoting.connection import Connection
from tandemq.remoting.dispatch import Handler
from tandemq.replication.metadata import LOG_END


@dataclass(frozen=True, slots=True, kw_only=True)
class HaFacts:
    """What replication tells other brokers and administrators."""

    ha_address: str
    """ip:port that slaves connect to; empty when there is none"""
    master_flush_offset: int = 0
    """The log's end when this master opened"""
    extra: Mapping[str, str]
    """Fields of our own in the answer to EXCHANGE_BROKER_HA_INFO; upstream ignores them"""


class PeerHandlers:
    def __init__(
        self,
        schedule: DelaySchedule,
        timers: TimerService,
        clock: Clock,
        *,
        is_slave: Callable[[], bool],
        address: str,
        ha_facts: Callable[[], HaFacts],
        ha_status: Callable[[], Mapping[str, Any]],
        master_announced: Callable[[str, str], None],
        min_broker_changed: Callable[[Mapping[str, str]], None] = lambda ext: None,
        true_at: Callable[[], int] = lambda: 0,
    ) -> None:
        self._true_at = true_at
        """Position of the log at which the delay offsets are true."""
        self._is_slave = is_slave
        self._schedule = schedule
        self._timers = timers
        self._clock = clock
        self._address = address
        self._ha_facts = ha_facts
        self._ha_status = ha_status
        self._master_announced = master_announced
        """(HA address, broker address) of a master that told us to follow it"""
        self._min_broker_changed = min_broker_changed

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_ALL_DELAY_OFFSET: self.delay_offsets,
            RequestCode.GET_TIMER_CHECK_POINT: self.timer_checkpoint,
            RequestCode.GET_TIMER_METRICS: self.timer_metrics,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self.request_modes,
            RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: self.min_broker,
            RequestCode.EXCHANGE_BROKER_HA_INFO: self.exchange_ha_info,
            RequestCode.GET_BROKER_HA_STATUS: self.ha_status,
            RequestCode.RESET_MASTER_FLUSH_OFFSET: self.reset_master_flush_offset,
        }

    @needs(on_cluster(GET))
    def delay_offsets(self, connection: Connection, command: Command) -> bytes:
        body = fastjson.dumps_unquoted(self._schedule.snapshot())
        ext = {LOG_END: str(self._true_at())}
        return encode_response(command.opaque, ResponseCode.SUCCESS, None, ext, body)

    @needs(on_cluster(GET))
    def timer_checkpoint(self, connection: Connection, command: Command) -> bytes:
        progress = self._timers.progress
        below = progress.seen_below
        told = TimerCheckpoint(
            read_ms=progress.read_ms, seen_below=below, in_log_below=below, version=self._clock.wall_ms()
        )
        return encode_response(command.opaque, ResponseCode.SUCCESS, None, None, told.encode())

    @needs(on_cluster(GET))
    def timer_metrics(self, connection: Connection, command: Command) -> bytes:
        version = {"counter": 0, "stateVersion": 0, "timestamp": self._clock.wall_ms()}
        return _json(command, {"dataVersion": version, "timingCount": {}})

    @needs(on_cluster(GET))
    def request_modes(self, connection: Connection, command: Command) -> bytes:
        return _json(command, {"messageRequestModeMap": {}})

    @needs(on_cluster(UPDATE), audited=False)
    def min_broker(self, connection: Connection, command: Command) -> bytes:
        self._min_broker_changed(command.ext)
        return encode_response(command.opaque, ResponseCode.SUCCESS)

    @needs(on_cluster(UPDATE), audited=False, key=True)
    def exchange_ha_info(self, connection: Connection, command: Command) -> bytes:
        """Takes a master's announcement if the request has an address; otherwise tells a slave where to connect."""
        announced = command.ext.get("masterHaAddress")
        if announced:
            if self._is_slave():
                self._master_announced(announced, command.ext.get("masterAddress", ""))
            return encode_response(command.opaque, ResponseCode.SUCCESS)
        facts = self._ha_facts()
        if self._is_slave():
            return encode_response(command.opaque, ResponseCode.SUCCESS, None, dict(facts.extra))
        ext = {
            **facts.extra,
            "masterAddress": self._address,
            "masterFlushOffset": str(facts.master_flush_offset),
            "masterHaAddress": facts.ha_address,
        }
        return encode_response(command.opaque, ResponseCode.SUCCESS, None, ext)

    @needs(on_cluster(GET))
    def ha_status(self, connection: Connection, command: Command) -> bytes:
        return _json(command, self._ha_status())

    @needs(on_cluster(UPDATE))
    def reset_master_flush_offset(self, connection: Connection, command: Command) -> bytes:
        """Accepts the value and keeps nothing: a slave learns from its session how far its master is durable."""
        int_field(command.ext, "masterFlushOffset", 0)
        return encode_response(command.opaque, ResponseCode.SUCCESS)


def _json(command: Command, body: Mapping[str, Any]) -> bytes:
    return encode_response(command.opaque, ResponseCode.SUCCESS, None, None, fastjson.dumps_unquoted(body))
