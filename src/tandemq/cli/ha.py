"""`tandemq ha status`: each broker's replication, its slaves, and why one that is not in sync is not."""

import json
from typing import Annotated, Any

import typer

from tandemq.cli.render import DEFAULT_NAMESRV, Json, Namesrv, note, print_json, show, with_admin
from tandemq.client.admin import Admin
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.errors import RemotingError, ReplyError
from tandemq.replication.metadata import PairCode

app = typer.Typer(help="Replication: who is master, who follows, who is in sync and why not.", no_args_is_help=True)

TIMEOUT = 3.0


@app.callback()
def ha() -> None:
    """Replication: who is master, who follows, who is in sync and why not."""


@app.command()
def status(
    namesrv: Namesrv = DEFAULT_NAMESRV,
    broker: Annotated[list[str] | None, typer.Option("--broker", "-b", help="Only this broker name.")] = None,
    address: Annotated[
        list[str] | None, typer.Option("--address", "-a", help="Ask this broker, not those known.")
    ] = None,
    as_json: Json = False,
) -> None:
    """What every broker says about its replication; a broker that does not answer is shown as such."""
    found = with_admin(namesrv, lambda admin: _collect(admin, broker, address))
    if as_json:
        print_json(found)
        return
    show(
        [_node_row(node) for node in found],
        {
            "broker": "BROKER",
            "id": "ID",
            "address": "ADDRESS",
            "role": "ROLE",
            "state": "STATE",
            "epoch": "EPOCH",
            "end": "END",
            "confirmed": "CONFIRMED",
            "follows": "FOLLOWS",
        },
        as_json=False,
        empty="no brokers; start one with `tandemq up`",
    )
    replicas = [_replica_row(node, replica) for node in found for replica in node.get("replicas", ())]
    if replicas:
        print()
        show(
            replicas,
            {
                "broker": "SLAVES OF",
                "replica": "REPLICA",
                "state": "STATE",
                "protocol": "PROTOCOL",
                "received": "RECEIVED",
                "durable": "DURABLE",
                "applied": "APPLIED",
                "lag": "LAG BYTES",
                "lag_ms": "LAG MS",
                "rate": "MB/S",
            },
            as_json=False,
        )
    for line in _advice(found):
        note(line)


async def _collect(admin: Admin, names: list[str] | None, addresses: list[str] | None) -> list[dict[str, Any]]:
    places: list[tuple[str, int, str]] = [("", -1, address) for address in addresses or ()]
    if not places:
        groups = (await admin.cluster()).groups
        for name, group in sorted(groups.items()):
            if not names or name in names:
                places += [(name, number, address) for number, address in sorted(group.addresses.items())]
    return [await _ask(admin, *place) for place in places]


async def _ask(admin: Admin, name: str, number: int, address: str) -> dict[str, Any]:
    """One of ours tells everything; RocketMQ tells what 907 has; one that does not answer tells why."""
    base: dict[str, Any] = {"broker": name, "brokerId": number, "address": address}
    session = admin.session
    try:
        reply = await session.remoting.invoke(address, session.command(PairCode.HA_DETAIL, {}), TIMEOUT)
        if reply.code == ResponseCode.SUCCESS:
            return {**base, **json.loads(bytes(reply.body))}
        reply = await session.remoting.invoke(address, session.command(RequestCode.GET_BROKER_HA_STATUS, {}), TIMEOUT)
        if reply.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:  # RocketMQ 4 has no such request
            return {**base, "role": "slave" if number > 0 else "master", "phase": "RocketMQ 4", "replicas": []}
        reply.raise_for_code(ResponseCode.SUCCESS)
    except (RemotingError, ReplyError) as error:
        return {**base, "role": "?", "phase": "does not answer", "error": str(error), "replicas": []}
    return {**base, **_from_upstream(json.loads(bytes(reply.body)))}


def _from_upstream(body: dict[str, Any]) -> dict[str, Any]:
    replicas = [
        {
            "replica": item.get("addr", ""),
            "state": "in sync" if item.get("inSync") else "behind",
            "protocol": "classic",
            "received": item.get("slaveAckOffset", 0),
            "durable": 0,
            "applied": 0,
            "lag_bytes": item.get("diff", 0),
            "lag_ms": 0,
            "rate": item.get("transferredByteInSecond", 0),
        }
        for item in body.get("haConnectionInfo") or ()
    ]
    client = body.get("haClientRuntimeInfo") or {}
    return {
        "role": "master" if body.get("master") else "slave",
        "phase": "RocketMQ",
        "end": body.get("masterCommitLogMaxOffset") or client.get("maxOffset", 0),
        "master": client.get("masterAddr", ""),
        "replicas": replicas,
    }


def _node_row(node: dict[str, Any]) -> dict[str, Any]:
    return {
        "broker": node.get("broker", ""),
        "id": node.get("brokerId", ""),
        "address": node.get("address", ""),
        "role": node.get("brokerRole") or node.get("role", ""),
        "state": node.get("phase", ""),
        "epoch": node.get("epoch", ""),
        "end": node.get("end", ""),
        "confirmed": node.get("confirmed", ""),
        "follows": node.get("master", ""),
    }


def _replica_row(node: dict[str, Any], replica: dict[str, Any]) -> dict[str, Any]:
    return {
        "broker": node.get("address", ""),
        "replica": replica["replica"],
        "state": replica["state"],
        "protocol": replica["protocol"],
        "received": replica["received"],
        "durable": replica["durable"],
        "applied": replica["applied"],
        "lag": replica["lag_bytes"],
        "lag_ms": replica["lag_ms"],
        "rate": round(replica["rate"] / 1e6, 1),
    }


def _advice(nodes: list[dict[str, Any]]) -> list[str]:
    """What is wrong and what to do, one line each."""
    lines = []
    for node in nodes:
        where = f"{node.get('broker', '')} {node.get('address', '')}"
        if node.get("error"):
            reason = f" [{node['reason']}]" if node.get("reason") else ""
            lines.append(f"{where}: {node['error']}{reason}. {node.get('advice', '')}".rstrip())
        if node.get("waiting_for"):
            lines.append(f"{where}: read-only, waits for {', '.join(node['waiting_for'])}")
        elif node.get("refusal") and node.get("role") == "master":
            lines.append(f"{where}: takes no messages: {node['refusal']}")
        for replica in node.get("replicas", ()):
            if replica.get("error") and not replica.get("in_sync"):
                told = f"{replica['error']} [{replica['reason']}]. {replica['advice']}"
                lines.append(f"{where}: slave {replica['replica']}: {told}")
        lines += [f"{where}: cut {cut}" for cut in node.get("cuts", ())]
    return lines
