"""Orders about replicas and elections: who is asked."""

from pathlib import Path
from typing import Any

from tandemq.cli.connection import client_config_with_key
from tandemq.cli.ha_nodes import Node, collect
from tandemq.client import orders
from tandemq.client.admin import Admin
from tandemq.errors import ClientError
from tandemq.replication.metadata import PairCode

FORGET_MS = 5_000


async def given(address: str, code: int, ext: dict[str, str], key_file: Path | None) -> str:
    """Gives one broker an order, proven by the group's key if there is a file with it; what it answers."""
    async with Admin(config=client_config_with_key(address, key_file)) as admin:
        return await orders.order(admin.session, address, code, ext)


async def one_of_each_group(admin: Admin, names: list[str] | None) -> list[str]:
    """Returns one broker's address for each group that has a coordinator; raises ClientError if there is none."""
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
    return await orders.order(admin.session, where, PairCode.FORGET, ext, wait_ms=FORGET_MS)


def master_of(nodes: list[Node], replica: str) -> str:
    """Returns the address of the master whose register names that replica; raises ClientError for none or several."""
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
