"""What makes an order to a broker safe to be late: until when it is meant by that broker's clock, and for which epoch.

A broker that hangs reads an order when it wakes; by then another may reign, and whoever gave it may have given up.
"""

import json
from pathlib import Path
from typing import Any

from tandemq.cli.connection import client_config_with_key
from tandemq.cli.ha_nodes import Node, collect
from tandemq.client.admin import Admin
from tandemq.codec.codes import ResponseCode
from tandemq.errors import ClientError
from tandemq.replication.metadata import PairCode

ASK_SECONDS = 5.0
ORDER_MS = 30_000
"""As long as who gave the order waits for its outcome."""


async def ordered(session: Any, address: str) -> dict[str, str]:
    """The fields an order carries; none for a broker that does not tell its clock."""
    reply = await session.remoting.invoke(address, session.command(PairCode.HA_DETAIL, {}), ASK_SECONDS)
    if reply.code != ResponseCode.SUCCESS:
        return {}
    detail = json.loads(bytes(reply.body))
    fields = {}
    if isinstance(detail.get("nowMs"), int):
        fields["expiresAt"] = str(detail["nowMs"] + ORDER_MS)
    register = detail.get("register")
    if isinstance(register, dict):
        fields["epoch"] = str(register["epoch"])
    return fields


async def given(address: str, name: str, ext: dict[str, str], key_file: Path | None) -> str:
    """Gives one broker an order, proven by the group's key if there is a file with it; what it answers."""
    async with Admin(config=client_config_with_key(address, key_file)) as admin:
        session = admin.session
        meant = {**ext, **await ordered(session, address)}
        reply = await session.remoting.invoke(address, session.command(PairCode[name], meant), ORDER_MS / 1000)
        reply.raise_for_code(ResponseCode.SUCCESS)
        return reply.remark or "done"


async def one_of_each_group(admin: Admin, names: list[str] | None) -> list[str]:
    """The address of one broker of each group that has a coordinator; ClientError if there is none."""
    found: dict[str, str] = {}
    for node in await collect(admin, names, None):
        if node.get("coordination"):
            found.setdefault(str(node.get("broker")), str(node["address"]))
    if not found:
        raise ClientError("no group with a coordinator (haCoordinator) is known to these name servers")
    return list(found.values())


async def forget_replica(admin: Admin, replica: str, address: str, ext: dict[str, str]) -> str:
    """Asks the master of the replica's group, found by the register if no address is given; what it answers."""
    where = address or master_of(await collect(admin, None, None), replica)
    session = admin.session
    meant = {**ext, **await ordered(session, where)}
    reply = await session.remoting.invoke(where, session.command(PairCode.FORGET, meant), ASK_SECONDS)
    reply.raise_for_code(ResponseCode.SUCCESS)
    return reply.remark or "done"


def master_of(nodes: list[Node], replica: str) -> str:
    """Where the master is whose register names that replica; ClientError if there is none, or more than one."""
    found = {
        node["address"]
        for node in nodes
        if node.get("role") == "master"
        for one in _named(node)
        if replica in (one["replica"], one["address"])
    }
    if len(found) != 1:
        why = "no master's register names it" if not found else f"it is named by {', '.join(sorted(found))}"
        raise ClientError(f"REPLICA={replica!r}: {why}; see `tandemq ha status`, or give the master with --address")
    return str(found.pop())


def _named(node: Node) -> list[dict[str, Any]]:
    register = node.get("register") or {}
    return [*register.get("members", ()), *register.get("joining", ())]
