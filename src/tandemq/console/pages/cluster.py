"""The first page: who takes messages, how much, on which disks, and what just happened."""

from typing import Any

from tandemq.codec.codes import RequestCode
from tandemq.console.acts import acting, typed
from tandemq.console.picture import HEALTHY, Group
from tandemq.console.routes import ActRoute, Page
from tandemq.console.visit import Visit
from tandemq.errors import ClientError, RemotingError, ReplyError

JUST_NOW = 8


async def build(visit: Visit) -> dict[str, Any]:
    snapshot, watch = visit.snapshot, visit.link.watch
    groups = snapshot.groups
    taking = sum(group.takes_messages for group in groups)
    return {
        "groups": groups,
        "taking": taking,
        "troubled": [group for group in groups if group.tone not in (HEALTHY, "unknown")],
        "changes": list(watch.changes)[:JUST_NOW],
        "acts": visit.console.journal.newest()[:JUST_NOW],
        "stored": _stored(groups, snapshot.reports),
        "nodes": sum(len(group.members) for group in groups),
        "kinds": sorted({group.kind for group in groups if group.kind}),
        "broker": visit.text("broker"),
    }


def _stored(groups: tuple[Group, ...], reports: Any) -> int:
    """Returns the bytes of all logs, each group's counted once."""
    found: dict[str, int] = {}
    for report in reports:
        try:
            held = int(report.facts["commitLogMaxOffset"]) - int(report.facts["commitLogMinOffset"])
        except (KeyError, ValueError):
            continue
        found[report.group] = max(found.get(report.group, 0), held)
    return sum(found.values())


async def change_writing(visit: Visit) -> str:
    """Takes a broker out of writing on every name server, or gives the permission back."""
    name = visit.field("broker")
    gives_back = visit.field("how") == "give"
    what = "give writing back" if gives_back else "take out of writing"
    with acting(visit, what, name) as act:
        typed(visit, name)
        code = RequestCode.ADD_WRITE_PERM_OF_BROKER if gives_back else RequestCode.WIPE_WRITE_PERM_OF_BROKER
        session = visit.link.session
        changed = 0
        for address in session.namesrv.candidates():
            try:
                reply = await session.invoke(address, code, {"brokerName": name})
                count = reply.raise_for_code().ext.get("addTopicCount" if gives_back else "wipeTopicCount", "0")
                changed = max(changed, int(count))
                act.details.append({"where": address, "outcome": f"{count} topics", "ok": True})
            except (RemotingError, ReplyError) as error:
                act.details.append({"where": address, "outcome": str(error), "ok": False})
        if not any(line["ok"] for line in act.details):
            raise ClientError(f"no name server did it: {act.details[0]['outcome'] if act.details else 'none is known'}")
        act.before, act.after = ("read only", "read and write") if gives_back else ("read and write", "read only")
        act.outcome = f"{changed} topics of {name}"
    return visit.url("/cluster", done=act.number)


PAGES = (Page("/cluster", "cluster.html", build),)
ACTS = (ActRoute("/cluster/writing", change_writing),)
