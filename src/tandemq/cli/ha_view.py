"""The health of a cluster's groups, and how `tandemq ha status` words and lays it out.  Pure.

Exit codes: 0 every group is healthy, 3 a member is absent or not in sync, 4 a group has no writer, 1 a broker refuses
to tell. The worst of all groups counts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from tandemq.cli.ha_nodes import REFUSES, SILENT, Node

HEALTHY, ERROR, NOT_IN_SYNC, NO_WRITER = 0, 1, 3, 4
_BY_SEVERITY = (NO_WRITER, NOT_IN_SYNC, ERROR, HEALTHY)

Table = list[list[str]]
"""Rows of cells; the first has the headings."""


@dataclass(frozen=True, slots=True)
class GroupHealth:
    """One group: its nodes, its exit code, and why in a few words."""

    name: str
    nodes: tuple[Node, ...]
    code: int
    why: str
    has_writer: bool
    slaves: int
    in_sync: int


def judge(nodes: Sequence[Node], *, asked_by_address: bool = False) -> list[GroupHealth]:
    """Returns the health of each group.

    `asked_by_address`: only some nodes were asked, so a slave that follows proves that its group has a master.
    """
    ordered = sorted(nodes, key=lambda node: (node.get("broker", ""), node.get("brokerId", 0)))
    return [
        _judge_group(name, tuple(members), asked_by_address)
        for name, members in groupby(ordered, key=lambda node: str(node.get("broker", "")))
    ]


def _judge_group(name: str, nodes: tuple[Node, ...], asked_by_address: bool) -> GroupHealth:
    has_writer = any(_writes(node) for node in nodes)
    if asked_by_address and not any(node.get("role") == "master" for node in nodes):
        has_writer = any(_follows(node) for node in nodes)
    missing = _missing(nodes)
    slaves = [replica for node in nodes for replica in node.get("replicas", ()) if replica.get("is_member", True)]
    in_sync = sum(bool(replica.get("in_sync")) for replica in slaves)
    if any(node.get("phase") == REFUSES for node in nodes):
        code, why = ERROR, "a broker refuses to tell"
    elif not has_writer:
        code, why = NO_WRITER, "no writer: nobody takes messages"
    elif missing:
        code, why = NOT_IN_SYNC, f"not in sync: {', '.join(missing)}"
    else:
        count = f"{len(slaves)} slave{'s' * (len(slaves) != 1)} in sync" if slaves else "no slave"
        if asked_by_address and not any(node.get("role") == "master" for node in nodes):
            count = "follows"  # the master, who knows the others, was not asked
        code, why = HEALTHY, f"healthy, {count}"
    return GroupHealth(name, nodes, code, why, has_writer, len(slaves), in_sync)


def _writes(node: Node) -> bool:
    return node.get("role") == "master" and bool(node.get("writable", True))  # RocketMQ does not tell


def _follows(node: Node) -> bool:
    return node.get("role") == "slave" and node.get("phase") not in (SILENT, REFUSES) and not node.get("error")


def _missing(nodes: Sequence[Node]) -> list[str]:
    """Returns the addresses of those that should follow and don't, each once."""
    found = [node["address"] for node in nodes if node.get("phase") == SILENT]
    found += [
        node["address"]
        for node in nodes
        if node.get("role") == "slave" and node.get("phase") not in ("following", "RocketMQ", "RocketMQ 4", REFUSES)
    ]
    found += [
        slave_name(replica)
        for node in nodes
        for replica in node.get("replicas", ())
        if replica.get("is_member", True) and not replica.get("in_sync")
    ]
    return list(dict.fromkeys(found))


def worst(groups: Sequence[GroupHealth]) -> int:
    """Returns the exit code of all groups together; nobody at all is nobody who writes."""
    codes = {group.code for group in groups} or {NO_WRITER}
    return next(code for code in _BY_SEVERITY if code in codes)


def behind(nodes: Sequence[Node]) -> str:
    """Returns which slave does not have all that its master has; empty when each has."""
    for node in nodes:
        if node.get("phase") in (SILENT, REFUSES):
            return f"{node['address']}: {node['phase']}"  # nobody knows what it has: it may be starting
        if node.get("role") != "slave":
            continue
        if not _follows(node) or node.get("phase") != "following":
            return f"{node['address']}: does not follow its master"
        if node.get("protocol") == "classic" and node.get("master_end", -1) < 0:
            return f"{node['address']}: its master has not told where its log ends"
        if node.get("lacks"):
            return f"{node['address']}: {_lacks(node)}"
        if node.get("lag_bytes", 0):
            return f"{node['address']}: {_copies(node)}"
    slaves = [replica for node in nodes for replica in node.get("replicas", ()) if replica.get("lag_bytes")]
    return f"{slave_name(slaves[0])}: {slaves[0]['lag_bytes']} bytes behind" if slaves else ""


def not_yet(groups: Sequence[GroupHealth], *, in_sync: bool, writable: bool) -> str:
    """Returns what is missing for `tandemq ha wait`; empty when everything asked for is there."""
    if not groups:
        return "no broker is registered"
    for group in groups:
        if writable and not group.has_writer:
            return f"{group.name}: no writer"
        if in_sync and not group.slaves:
            return f"{group.name}: no slave has joined"
        if in_sync and group.code != HEALTHY:
            return f"{group.name}: {group.why}"
    return ""


# Layout ---------------------------------------------------------------------------------------------------------------

_NODE_COLUMNS = {
    "ID": "brokerId",
    "ADDRESS": "address",
    "ROLE": "brokerRole",
    "STATE": "phase",
    "EPOCH": "epoch",
    "END": "end",
    "CONFIRMED": "confirmed",
}
_SLAVE_COLUMNS = {
    "SLAVE": "slave",
    "STATE": "state",
    "PROTOCOL": "protocol",
    "RECEIVED": "received",
    "DURABLE": "durable",
    "APPLIED": "applied",
    "LAG": "lag_bytes",
    "LAG MS": "lag_ms",
    "MB/S": "rate",
}
_DISPENSABLE = ("MB/S", "APPLIED", "PROTOCOL", "EPOCH", "DURABLE", "LAG MS", "CONFIRMED")
"""In this order columns go when a line would be too long; `--json` has them all."""
_GAP = 2


def lines_of(groups: Sequence[GroupHealth], width: int) -> list[str]:
    """Returns what a person reads, no line longer than `width` as long as names and numbers allow."""
    lines: list[str] = []
    for group in groups:
        lines += ["", f"{group.name or group.nodes[0]['address']}: {group.why}"]
        lines += _drawn(_node_table(group.nodes), width)
        slaves = _slave_table(group.nodes)
        if len(slaves) > 1:
            lines += ["", *_drawn(slaves, width)]
        if register := register_line(group.nodes):
            lines += ["", register]
        lines += election_lines(group.nodes)
    return lines[1:]


def slave_name(replica: Mapping[str, object]) -> str:
    """Returns a replica's address; its identity has the same and a number that only brokers need."""
    return str(replica.get("address") or replica.get("replica", "")).partition("#")[0]


def _node_table(nodes: Sequence[Node]) -> Table:
    rows = [{**node, "brokerRole": _role(node)} for node in nodes]
    return [list(_NODE_COLUMNS), *([str(row.get(key, "")) for key in _NODE_COLUMNS.values()] for row in rows)]


def _role(node: Node) -> str:
    told = node.get("brokerRole") or node.get("role", "")
    return "OBSERVER" if node.get("observer") and told == "SLAVE" else str(told)


def _slave_table(nodes: Sequence[Node]) -> Table:
    table: Table = [list(_SLAVE_COLUMNS)]
    for node in nodes:
        names = [slave_name(replica) for replica in node.get("replicas", ())]
        for name, replica in zip(names, node.get("replicas", ()), strict=True):
            told = {
                **replica,
                "slave": name if names.count(name) == 1 else replica["replica"],
                "rate": f"{replica['rate'] / 1e6:.1f}",
            }
            cells = (told.get(key) for key in _SLAVE_COLUMNS.values())
            table.append(["" if cell is None else str(cell) for cell in cells])
    return table


def _drawn(table: Table, width: int) -> list[str]:
    """Returns a table's lines, without the columns that can be spared if they are too many."""
    if "PROTOCOL" in table[0]:
        column = table[0].index("PROTOCOL")
        if all(row[column] in ("extended", "") for row in table[1:]):
            table = _without(table, "PROTOCOL")  # our own is no news
    for heading in _DISPENSABLE:
        if _width(table) <= width:
            break
        table = _without(table, heading)
    sizes = [max(map(len, column)) for column in zip(*table, strict=True)]
    numeric = [all(_is_number(cell) for cell in column[1:]) for column in zip(*table, strict=True)]
    lines = []
    for row in table:
        aligned = zip(row, sizes, numeric, strict=True)
        cells = (cell.rjust(size) if right else cell.ljust(size) for cell, size, right in aligned)
        lines.append((" " * _GAP).join(cells).rstrip())
    return lines


def _is_number(cell: str) -> bool:
    return not cell or cell.replace(".", "", 1).lstrip("-").isdigit()


def _without(table: Table, heading: str) -> Table:
    if heading not in table[0]:
        return table
    column = table[0].index(heading)
    return [row[:column] + row[column + 1 :] for row in table]


def _width(table: Table) -> int:
    sizes = [max(map(len, column)) for column in zip(*table, strict=True)]
    return sum(sizes) + _GAP * (len(sizes) - 1)


# Advice ---------------------------------------------------------------------------------------------------------------


def advice(nodes: Sequence[Node]) -> list[str]:
    """Returns what is wrong, since when, and what to do: a line each."""
    lines = []
    for node in nodes:
        where = f"{node.get('broker', '')} {node.get('address', '')}".strip()
        if node.get("error"):
            lines.append(f"{where}: {_trouble(node)}")
        if node.get("provisional"):
            waits = ", ".join(node.get("waiting_for", ()))
            lines.append(f"{where}: reigns provisionally, at one copy, until it has heard {waits}")
        elif node.get("waiting_for"):
            lines.append(f"{where}: read-only, waits for {', '.join(node['waiting_for'])}")
        elif node.get("refusal") and node.get("role") == "master" and node["refusal"] != node.get("error"):
            lines.append(f"{where}: takes no messages: {node['refusal']}")
        lines += [
            f"{where}: slave {slave_name(replica)}: {_trouble(replica)}"
            for replica in node.get("replicas", ())
            if replica.get("error") and not replica.get("in_sync")
        ]
        if node.get("master_end", -1) >= 0 and node.get("phase") == "following":
            lines.append(f"{where}: {_copies(node)}")
        if node.get("lacks"):
            lines.append(f"{where}: {_lacks(node)}")
        if node.get("role") == "slave" and node.get("phase") != "following" and _is_half(node):
            lines.append(f"{where}: {_half(node)}")
        lines += [f"{where}: cut {cut}" for cut in node.get("cuts", ())]
        lines += [f"{where}: {warning}" for warning in node.get("warnings", ())]
        lines += _joining(where, node)
    return lines


def _copies(node: Node) -> str:
    """Returns how far a slave of a RocketMQ master has come."""
    protocol = "RocketMQ's protocol" if node.get("protocol") == "classic" else "our protocol"
    its_end = max(node["master_end"], node["end"])  # it was asked a while ago, and what came since came from it
    done = f"copies from {node.get('master', '')} in {protocol}: its END is {its_end}, ours {node['end']}"
    lag = node.get("lag_bytes", 0)
    if not lag:
        return f"{done}, it has everything"
    first = max(0, node.get("master_first", 0))
    share = max(0, node["end"] - first) * 100 // max(1, node["master_end"] - first)
    left = node.get("seconds_left")
    rest = f", about {age_text(int(left * 1000))} left" if left is not None else ""
    return f"{done}, {lag} bytes and {age_text(node.get('lag_ms', 0))} behind, {share} % done{rest}"


def _lacks(node: Node) -> str:
    start, stop = node["lacks"]
    return (
        f"lacks [{start}, {stop}) of the history that its master still has; to copy it all, start it with an empty "
        "store directory and without haSyncFromLastFile"
    )


def _is_half(node: Node) -> bool:
    return bool(node.get("copying_to", -1) > node.get("end", 0))  # RocketMQ 4 tells neither


def _half(node: Node) -> str:
    """Says what a slave lacks that stopped in the middle of its copy from a RocketMQ master."""
    return (
        f"has copied up to {node['end']} of its RocketMQ master's log, which ended at {node['copying_to']}; it is not "
        "promoted without --accept-loss"
    )


def _joining(where: str, node: Node) -> list[str]:
    """Says for whom a newcomer waits: members that are away must store that it joins."""
    register = node.get("register") or {}
    return [
        f"{where}: {one['replica']} joins, waits for {', '.join(one['waits_for'])}; start them, or `tandemq ha forget`"
        for one in register.get("joining", ())
        if node.get("role") == "master" and one.get("waits_for")
    ]


def register_line(nodes: Sequence[Node]) -> str:
    """Returns the newest register that the nodes of a group know, in a line; empty if none has one."""
    known = [node["register"] for node in nodes if node.get("register")]
    if not known:
        return ""
    newest = max(known, key=lambda register: (register["epoch"], register["revision"]))
    joining = f", {len(newest['joining'])} joining" if newest["joining"] else ""
    return (
        f"register: epoch {newest['epoch']}, revision {newest['revision']}, {len(newest['members'])} members, "
        f"{len(newest['in_sync'])} in sync{joining}"
    )


def election_lines(nodes: Sequence[Node]) -> list[str]:
    """Returns where the register lives, whose lease lives, and who may be elected; none without a coordinator."""
    told = [node for node in nodes if node.get("coordination")]
    if not told:
        return []
    # Whoever reigns knows its lease; of the others the one that has read etcd last.
    best = max(told, key=lambda node: (node["coordination"]["lease_left"], node["coordination"]["revision"]))
    seen = best["coordination"]
    state = "answers" if seen["answers"] else f"does not answer ({seen['trouble']})"
    lines = [f"coordinator: {seen['place']} {state}, register at etcd's revision {seen['revision']}"]
    lease = f"{seen['lease_left']:.1f} of {seen['lease_seconds']:g} s left" if seen["lease_left"] else "nobody holds it"
    how = ", the in-sync members vouch for it" if seen["vouched"] else ""
    lines.append(f"lease: {lease}{how}{_flags(seen)}")
    return lines + [f"election: {_electable(node)}" for node in told] + _absent_lines(nodes, told)


def _absent_lines(nodes: Sequence[Node], told: Sequence[Node]) -> list[str]:
    """Says of the members that did not answer why they can't be elected."""
    known = [node["register"] for node in nodes if node.get("register")]
    if not known:
        return []
    newest = max(known, key=lambda register: (register["epoch"], register["revision"]))
    here = {node.get("replica") for node in told}
    return [
        f"election: {one['address']} no: nothing was heard of it"
        + ("" if one["replica"] in newest["in_sync"] else ", and is not in sync")
        for one in newest["members"]
        if one["replica"] not in here
    ]


def _flags(seen: Mapping[str, object]) -> str:
    flags = "; elections are paused" if seen["paused"] else ""
    return f"{flags}; an operator chose the master" if seen["pinned"] else flags


def _electable(node: Node) -> str:
    """Says whether a node may be elected, or why not."""
    seen, register = node["coordination"], node.get("register") or {}
    replica = node.get("replica", "")
    members = {one["replica"] for one in register.get("members", ())}
    if seen["refusal"]:
        why = seen["refusal"]
    elif register.get("holder") == replica:
        why = f"reigns, priority {seen['priority']}" if node.get("writable") else "holds the last reign"
    elif replica not in members:
        why = "no: it is no member yet"
    elif replica not in register.get("in_sync", ()):
        why = "no: it is not in sync"
    elif seen["hindrance"]:
        why = f"no: {seen['hindrance']}"
    else:
        why = f"may be elected, priority {seen['priority']}"
    return f"{node['address']} {why}"


def _trouble(told: Mapping[str, object]) -> str:
    reason = f" [{told['reason']}]" if told.get("reason") else ""
    age = int(str(told.get("error_age_ms") or 0))
    since = f", {age_text(age)} ago" if age else ""
    return f"{told['error']}{reason}{since}. {told.get('advice', '')}".rstrip()


def age_text(ms: int) -> str:
    """Returns an age in its two largest units: 3 s, 2 min 5 s, 1 h 12 min, 3 d 4 h."""
    seconds = ms // 1000
    units = (("d", seconds // 86_400), ("h", seconds // 3600 % 24), ("min", seconds // 60 % 60), ("s", seconds % 60))
    first = next((place for place, (_, count) in enumerate(units) if count), len(units) - 1)
    return " ".join(f"{count} {unit}" for unit, count in units[first : first + 2] if count) or "0 s"
