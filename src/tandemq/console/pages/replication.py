"""The HA page: each group as members on one log axis, who follows whom, why one is not in sync, what happened."""

from typing import Any

from tandemq.console.picture import HEALTHY, UNKNOWN, Group, Member
from tandemq.console.routes import Page
from tandemq.console.texts import duration, size
from tandemq.console.visit import Visit
from tandemq.console.watch import Watch


async def build(visit: Visit) -> dict[str, Any]:
    watch = visit.link.watch
    groups = visit.snapshot.groups
    wanted = visit.text("group")
    shown = [group for group in groups if not wanted or group.name == wanted]
    return {
        "pictures": [_picture(watch, group) for group in shown],
        "wanted": wanted,
        "verdict": _verdict(groups),
        "no_ha": [group for group in groups if group.kind == "RocketMQ 4"],
    }


def _picture(watch: Watch, group: Group) -> dict[str, Any]:
    window = watch.window(group)
    end = group.end or 0
    return {
        "group": group,
        "window": window,
        "scale": [f"−{size(window * part // 4)}" for part in (4, 3, 2)],
        "lanes": [_lane(watch, group, member, end, window) for member in group.members],
        "timeline": watch.timeline(group.name),
        "register": _facts(group.register),
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
    if short:
        have = "has" if len(short) == 1 else "have"
        return f"{len(short)} of {len(groups)} groups {have} fewer copies than they should.", "The worst comes first."
    return "Every group has its master and its copies.", ""


def _facts(register: Any, prefix: str = "", depth: int = 0) -> list[tuple[str, str]]:
    """Returns the group's register as name and value, whatever it holds."""
    found: list[tuple[str, str]] = []
    for name, value in dict(register).items():
        label = f"{prefix}{str(name).replace('_', ' ')}"
        if isinstance(value, dict) and depth < 2:
            found += _facts(value, f"{label} ", depth + 1)
        elif isinstance(value, (list, tuple)):
            found.append((label, ", ".join(str(item).partition("#")[0] for item in value) or "nobody"))
        elif str(name).endswith("_ms") and isinstance(value, (int, float)):
            found.append((label.removesuffix(" ms"), duration(value)))
        elif value not in ("", None):
            found.append((label, str(value).partition("#")[0]))
    return found[:24]


PAGES = (Page("/replication", "replication.html", build),)
