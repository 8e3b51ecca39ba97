"""Orders about replicas: who is asked to forget one."""

from typing import Any

from tandemq.cli.ha_nodes import Node, collect
from tandemq.client import orders
from tandemq.client.admin import Admin
from tandemq.errors import ClientError
from tandemq.replication.metadata import PairCode

FORGET_MS = 5_000


async def forget_replica(admin: Admin, replica: str, address: str, ext: dict[str, str]) -> str:
    """Asks the master of the replica's group, found by the register if no address is given; what it answers."""
    where = address or master_of(await collect(admin, None, None), replica)
    return await orders.order(admin.session, where, PairCode.FORGET, ext, wait_ms=FORGET_MS)


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
