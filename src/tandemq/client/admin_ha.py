"""Admin's part about replication: everything one broker says about it, whoever made the broker.

Ours tell all (32105). RocketMQ 5 tells what its GET_BROKER_HA_STATUS has, RocketMQ 4 nothing: `kind` says which it is.
"""

import json
from collections.abc import Mapping
from typing import Any

from tandemq.client.admin_base import ClusterAdmin
from tandemq.codec import bodies
from tandemq.codec.codes import OperatorCode, RequestCode, ResponseCode
from tandemq.codec.command import Command
from tandemq.codec.ha_classic import OBSERVER_REPORT

TANDEMQ, ROCKETMQ_5, ROCKETMQ_4 = "TandemQ", "RocketMQ 5", "RocketMQ 4"
LINES_MAX = 200


class HaAdmin(ClusterAdmin):
    """Replication, what happened to it, and what administrators did."""

    async def ha_detail(self, address: str, *, timeout_ms: int = 3_000) -> dict[str, Any]:
        """Returns `tandemq ha status --json` of one broker, with its `kind`; RemotingError, ReplyError."""
        reply = await self._try(address, OperatorCode.HA_DETAIL, timeout_ms)
        if reply.code == ResponseCode.SUCCESS:
            return {**bodies.object_of(json.loads(bytes(reply.body)), "HA detail"), "kind": TANDEMQ}
        if reply.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            reply.raise_for_code()
        reply = await self._try(address, RequestCode.GET_BROKER_HA_STATUS, timeout_ms)
        if reply.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return {"kind": ROCKETMQ_4, "replicas": []}
        reply.raise_for_code()
        return {**_of_rocketmq(bodies.load_object(reply.body, "HA status")), "kind": ROCKETMQ_5}

    async def events(self, address: str, *, count_max: int = LINES_MAX) -> list[dict[str, Any]]:
        """Returns what happened to a broker's replication, newest first; ReplyError from a broker that is not ours."""
        return await self._lines(address, OperatorCode.GET_EVENTS, "events", count_max)

    async def audit(self, address: str, *, count_max: int = LINES_MAX) -> list[dict[str, Any]]:
        """Returns what administrators did on a server, newest first; ReplyError from a server that is not ours."""
        return await self._lines(address, OperatorCode.GET_AUDIT, "acts", count_max)

    async def _lines(self, address: str, code: int, name: str, count_max: int) -> list[dict[str, Any]]:
        reply = await self._ask(address, code, {"countMax": str(count_max)})
        found = bodies.object_of(json.loads(bytes(reply.body)), name)
        return [bodies.object_of(item, name) for item in bodies.list_of(found.get(name), name)]

    async def _try(self, address: str, code: int, timeout_ms: int) -> Command:
        return await self.session.invoke(address, code, {}, timeout_ms=timeout_ms)


def _of_rocketmq(body: Mapping[str, Any]) -> dict[str, Any]:
    """Returns RocketMQ 5's answer in our words; what it does not tell is not there."""
    slave = bodies.object_of(body.get("haClientRuntimeInfo"), "haClientRuntimeInfo")
    is_master = bodies.bool_of(body, "master")
    return {
        "role": "master" if is_master else "slave",
        "phase": "open" if is_master else "following",
        "end": bodies.int_of(body, "masterCommitLogMaxOffset") or bodies.int_of(slave, "maxOffset"),
        "master": bodies.text_of(slave, "masterAddr"),
        "replicas": [_of_connection(link) for link in bodies.list_of(body.get("haConnectionInfo"), "haConnectionInfo")],
    }


def _of_connection(link: Any) -> dict[str, Any]:
    """Returns one of a RocketMQ master's slaves; an observer of ours among them tells no position."""
    received = bodies.int_of(link, "slaveAckOffset")
    is_observer, is_in_sync = received == OBSERVER_REPORT, bodies.bool_of(link, "inSync")
    return {
        "address": bodies.text_of(link, "addr"),
        "state": "observing" if is_observer else "in sync" if is_in_sync else "behind",
        "in_sync": is_in_sync,
        "protocol": "classic",
        "received": 0 if is_observer else received,
        "lag_bytes": 0 if is_observer else max(0, bodies.int_of(link, "diff")),
        "rate": bodies.int_of(link, "transferredByteInSecond"),
    }
