"""What `tandemq broker list` and `tandemq broker config` ask of running brokers."""

import asyncio
import re
from collections.abc import Mapping
from typing import Any

from tandemq.cli.render import note, parse_pairs, print_json, show, with_admin
from tandemq.client.admin import Admin
from tandemq.errors import ClientError, RemotingError, ReplyError

HEADINGS = {
    "broker": "BROKER",
    "brokerId": "ID",
    "address": "ADDRESS",
    "version": "VERSION",
    "inPerSecond": "IN/S",
    "outPerSecond": "OUT/S",
    "diskUsedPercent": "DISK %",
    "state": "STATE",
}


def list_brokers(namesrv: str, as_json: bool) -> None:
    async def work(admin: Admin) -> list[dict[str, Any]]:
        places = [
            (group.cluster, name, number, address)
            for name, group in sorted((await admin.cluster()).groups.items())
            for number, address in sorted(group.addresses.items())
        ]
        return list(await asyncio.gather(*(_one(admin, *place) for place in places)))

    show(with_admin(namesrv, work), HEADINGS, as_json=as_json, empty="no broker is registered with these name servers")


async def _one(admin: Admin, cluster: str, name: str, number: int, address: str) -> dict[str, Any]:
    row: dict[str, Any] = {"cluster": cluster, "broker": name, "brokerId": number, "address": address}
    try:
        facts = (await admin.broker(address)).facts
    except (RemotingError, ReplyError, ClientError) as error:
        return {**row, "state": "does not answer", "error": str(error)}
    return {
        **row,
        "version": version_of(facts),
        "inPerSecond": _first_rate(facts.get("putTps", "")),
        "outPerSecond": _first_rate(facts.get("getTransferredTps") or facts.get("getTransferedTps", "")),
        "diskUsedPercent": _percent(facts.get("commitLogDiskRatio", "")),
        "state": "up",
    }


def version_of(facts: Mapping[str, str]) -> str:
    """Returns TandemQ's own version, or RocketMQ's as its brokers word it."""
    ours = facts.get("tandemqVersion")
    return f"TandemQ {ours}" if ours else facts.get("brokerVersionDesc", "?").replace("_", ".").lstrip("V")


def _first_rate(text: str) -> float | None:
    """Returns the rate over the last ten seconds, the first of three numbers."""
    match = re.match(r"[\d.]+", text)
    return round(float(match[0]), 1) if match else None


def _percent(text: str) -> float | None:
    try:
        return round(100 * float(text), 1)
    except ValueError:
        return None


def show_or_change_config(address: str, assignments: list[str], pattern: str, namesrv: str, as_json: bool) -> None:
    changes = parse_pairs(assignments, "--set")

    async def work(admin: Admin) -> tuple[dict[str, str], dict[str, str]]:
        before = await admin.broker_config(address)
        if not changes:
            return before, before
        await admin.update_broker_config(address, changes)
        return before, await admin.broker_config(address)

    before, after = with_admin(namesrv, work)
    if changes:
        after = {key: after.get(key, "") for key in changes}
    shown = {key: value for key, value in sorted(after.items()) if pattern.lower() in key.lower()}
    if as_json:
        print_json(shown)
        return
    rows = [{"option": key, "value": value, "before": before.get(key, "")} for key, value in shown.items()]
    headings = {"option": "OPTION", "value": "VALUE"} | ({"before": "BEFORE"} if changes else {})
    show(rows, headings, as_json=False, empty=f"{address} has no option like {pattern!r}")
    if changes:
        note("in force until the broker restarts: write it into its broker.conf as well")
