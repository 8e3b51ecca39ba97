"""The HA page: each group as members on one log axis, who follows whom, why one is not in sync, what happened."""

from typing import Any

from tandemq.client import orders
from tandemq.console.acts import acting, typed
from tandemq.console.picture import HEALTHY, UNKNOWN, Group, Member
from tandemq.console.reign_facts import Section, coordination_facts, facts_of
from tandemq.console.routes import ActRoute, Endpoint, Page
from tandemq.console.switch_plan import ROLES, plan_switch, told
from tandemq.console.texts import size
from tandemq.console.visit import Visit
from tandemq.console.watch import Watch
from tandemq.errors import ClientError


async def build(visit: Visit) -> dict[str, Any]:
    watch = visit.link.watch
    groups = visit.snapshot.groups
    wanted = visit.text("group")
    shown = [group for group in groups if not wanted or group.name == wanted]
    return {
        "pictures": [_picture(watch, group) for group in shown],
        "wanted": wanted,
        "verdict": _verdict(groups),
        "roles": ROLES,
        **_switch(visit, wanted, visit.text("promote")),
    }


def _switch(visit: Visit, group: str, address: str) -> dict[str, Any]:
    """Returns the plan that the URL asks for, or why there is none: the rest of the page is shown all the same."""
    try:
        return {"switch": plan_switch(_group(visit, group), address) if address else None, "switch_problem": ""}
    except ClientError as error:
        return {"switch": None, "switch_problem": str(error)}


def _group(visit: Visit, name: str) -> Group:
    for group in visit.snapshot.groups:
        if group.name == name:
            return group
    raise ClientError(f"there is no broker group {name[:80]!r}: choose one on the Replication page")


def _picture(watch: Watch, group: Group) -> dict[str, Any]:
    window = watch.window(group)
    end = group.end or 0
    return {
        "group": group,
        "window": window,
        "scale": [f"−{size(window * part // 4)}" for part in (4, 3, 2)],
        "lanes": [_lane(watch, group, member, end, window) for member in group.members],
        "timeline": watch.timeline(group.name),
        "facts": [*coordination_facts(group.coordination), *_register(group)],
        "is_quiet": group.tone == HEALTHY,
    }


def _lane(watch: Watch, group: Group, member: Member, end: int, window: int) -> dict[str, Any]:
    whom = f"{group.name}/{member.address}"
    series = watch.lag("in" if member.is_master else "lag", whom)
    behind = max(0, end - member.received) if member.received is not None else None
    return {
        "member": member,
        "behind": behind,
        "gap": behind is not None and behind * 4 >= window,
        "growing": _is_growing(series.thinned(8)),
        "spark": series.thinned(),
        "peak": series.peak,
        "spark_ms": [] if member.is_master else watch.lag("lag_ms", whom).thinned(),
        "peak_ms": watch.lag("lag_ms", whom).peak,
    }


def _is_growing(values: list[float | None]) -> bool:
    known = [value for value in values if value is not None]
    return len(known) >= 2 and known[-1] > known[0]


def _verdict(groups: tuple[Group, ...]) -> tuple[str, str]:
    if not groups:
        return "No broker is known.", "Start one, or look at the name servers on the Cluster page."
    without = [group for group in groups if not group.takes_messages]
    short = [group for group in groups if group.takes_messages and group.tone not in (HEALTHY, UNKNOWN)]
    if without:
        names = ", ".join(group.name for group in without)
        tail = f" {len(short)} more wait for copies." if short else ""
        if len(groups) == 1:
            return f"{names} takes no messages.", "It is the only group."
        take = "takes" if len(without) == 1 else "take"
        return f"{len(without)} of {len(groups)} groups {take} no messages: {names}.", f"The worst comes first.{tail}"
    if short and len(groups) == 1:
        return f"{short[0].name} has fewer copies than it should.", "It is the only group."
    if short:
        have = "has" if len(short) == 1 else "have"
        return f"{len(short)} of {len(groups)} groups {have} fewer copies than they should.", "The worst comes first."
    silent = [group for group in groups if group.tone == UNKNOWN]
    if silent:
        names = ", ".join(group.name for group in silent)
        return "Every group has its master.", f"Of its copies nothing is told here: {names}."
    return "Every group has its master and its copies.", ""


def _register(group: Group) -> list[Section]:
    return [("Register", facts_of(group.register))] if group.register else []


async def promote(visit: Visit) -> str:
    """Makes a slave the master of its group."""
    act = await _promote(visit)
    return visit.url("/replication", group=visit.field("group"), done=act.number)


async def _promote(visit: Visit) -> Any:
    name, address = visit.field("group"), visit.field("address")
    with acting(visit, "make master", f"{address} of {name}") as act:
        typed(visit, name)
        plan = plan_switch(_group(visit, name), address)
        role = visit.field("role") or plan.role
        if role not in ROLES:
            raise ClientError(f"role={role[:40]!r}: one of {', '.join(ROLES)} is expected")
        act.before = told(_group(visit, name))
        async with visit.console.links.for_orders(visit.link) as session:
            act.outcome = await orders.promote(session, address, role, accept_loss=bool(visit.field("acceptLoss")))
        after = await visit.link.watch.newer()
        act.after = told(next((group for group in after.groups if group.name == name), None))
    return act


async def api_promote(visit: Visit) -> Any:
    return {"act": await _promote(visit)}


PAGES = (Page("/replication", "replication.html", build),)
ACTS = (ActRoute("/replication/promote", promote),)
ENDPOINTS = (
    Endpoint("POST", "/api/v1/replication/promote", "Makes a slave the master of its group.", api_promote,
             body={"group": "the broker group", "name": "the group typed again", "address": "host:port of the slave",
                   "role": "SYNC_MASTER or ASYNC_MASTER; as the master has it if left out",
                   "acceptLoss": "true: go on without replicas that can't be heard"}),
)  # fmt: skip
