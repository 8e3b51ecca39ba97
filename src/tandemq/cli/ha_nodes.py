"""What the brokers of a cluster say about their replication: one of ours tells everything, RocketMQ what it knows."""

import asyncio
import json
from typing import Any

from tandemq.client.admin import Admin
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.ha_classic import OBSERVER_REPORT
from tandemq.errors import ClientError, RemotingError, ReplyError
from tandemq.replication.metadata import PairCode

Node = dict[str, Any]

TIMEOUT = 3.0
"""Seconds that one broker may take to answer; all are asked at once."""
SILENT, REFUSES = "does not answer", "refuses to tell"


async def collect(admin: Admin, names: list[str] | None, addresses: list[str] | None) -> list[Node]:
    """Returns a node for each broker that was named, or that the name servers know."""
    places: list[tuple[str, int, str]] = [("", -1, address) for address in addresses or ()]
    if not places:
        groups = (await admin.cluster()).groups
        for name, group in sorted(groups.items()):
            if not names or name in names:
                places += [(name, number, address) for number, address in sorted(group.addresses.items())]
    return list(await asyncio.gather(*(_ask(admin, *place) for place in places)))


async def _ask(admin: Admin, name: str, number: int, address: str) -> Node:
    base: Node = {"broker": name, "brokerId": number, "address": address}
    session = admin.session
    try:
        reply = await session.remoting.invoke(address, session.command(PairCode.HA_DETAIL, {}), TIMEOUT)
        if reply.code == ResponseCode.SUCCESS:
            return {**base, **json.loads(bytes(reply.body))}
        reply = await session.remoting.invoke(address, session.command(RequestCode.GET_BROKER_HA_STATUS, {}), TIMEOUT)
        if reply.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return {**base, **await _without_ha_status(admin, number, address)}
        reply.raise_for_code(ResponseCode.SUCCESS)
    except RemotingError as error:
        return {**base, "role": "?", "phase": SILENT, "error": str(error), "replicas": []}
    except ReplyError as error:
        return {**base, "role": "?", "phase": REFUSES, "error": str(error), "replicas": []}
    return {**base, **from_rocketmq5(json.loads(bytes(reply.body)))}


async def _without_ha_status(admin: Admin, number: int, address: str) -> Node:
    """Describes a broker of RocketMQ 4, which has no such request; raises ClientError if it is no broker at all."""
    session = admin.session
    command = session.command(RequestCode.GET_BROKER_CLUSTER_INFO, {})
    if (await session.remoting.invoke(address, command, TIMEOUT)).code == ResponseCode.SUCCESS:
        raise ClientError(f"{address} is a name server, not a broker: give it as --namesrv {address}")
    facts: Node = {"role": "slave" if number > 0 else "master", "phase": "RocketMQ 4", "replicas": []}
    if number >= 0:
        return facts
    config = await admin.broker_config(address)
    is_slave = config.get("brokerRole") == "SLAVE"
    number = int(config.get("brokerId", "0"))
    return {**facts, "broker": config.get("brokerName", ""), "brokerId": number, "role": ("master", "slave")[is_slave]}


def from_rocketmq5(body: dict[str, Any]) -> Node:
    """Returns RocketMQ 5's answer in our words."""
    replicas = [_rocketmq5_slave(item) for item in body.get("haConnectionInfo") or ()]
    client = body.get("haClientRuntimeInfo") or {}
    return {
        "role": "master" if body.get("master") else "slave",
        "phase": "RocketMQ",
        "end": body.get("masterCommitLogMaxOffset") or client.get("maxOffset", 0),
        "master": client.get("masterAddr", ""),
        "replicas": replicas,
    }


def _rocketmq5_slave(item: dict[str, Any]) -> dict[str, Any]:
    """Returns one of a RocketMQ master's connections; an observer of ours on it tells no position, so none is shown."""
    is_observer = item.get("slaveAckOffset") == OBSERVER_REPORT
    state = "in sync" if item.get("inSync") else "behind"
    return {
        "replica": item.get("addr", ""),
        "address": item.get("addr", ""),
        "state": "observing" if is_observer else state,
        "in_sync": bool(item.get("inSync")),
        "is_member": not is_observer,
        "protocol": "classic",
        "received": None if is_observer else item.get("slaveAckOffset", 0),
        "durable": 0,
        "applied": 0,
        "lag_bytes": None if is_observer else max(0, item.get("diff", 0)),
        "lag_ms": 0,
        "rate": item.get("transferredByteInSecond", 0),
    }
