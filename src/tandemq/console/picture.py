"""What the nodes of a cluster say, made into what a person wants to know: who is well, why one is not. Pure.

A report is one node's answer, or its silence. From the reports of a broker group comes one `Group` with its members,
a tone, a word and a verdict; the pages, the JSON API and the tests read the same values.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tandemq.console.texts import duration, plural, size

HEALTHY, CATCHING_UP, ABSENT, READ_ONLY, DANGER, UNKNOWN = (
    "healthy", "catching-up", "absent", "read-only", "danger", "unknown",
)  # fmt: skip
SEVERITY = {DANGER: 0, READ_ONLY: 1, CATCHING_UP: 2, ABSENT: 3, UNKNOWN: 4, HEALTHY: 5}
"""Tone -> its place in a list that shows the worst first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What one broker said last."""

    group: str
    broker_id: int
    address: str
    cluster: str = ""
    kind: str = ""
    """TandemQ, RocketMQ 5, RocketMQ 4; empty while it has never answered."""
    detail: Mapping[str, Any] = field(default_factory=dict)
    """Its replication, as of `heard_ms`."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Its run-time info, by RocketMQ's names."""
    heard_ms: int = 0
    answers: bool = True
    error: str = ""
    listed: bool = True
    """Whether a name server knows it now."""

    @classmethod
    def of(cls, place: tuple[str, str], broker_id: int, cluster: str) -> "Report":
        """Returns what is known of a broker that a name server lists and nobody has asked yet."""
        return cls(group=place[0], address=place[1], broker_id=broker_id, cluster=cluster)


@dataclass(frozen=True, slots=True)
class Note:
    """A problem with its reason and what to do."""

    tone: str
    reason: str
    text: str
    advice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    address: str
    broker_id: int
    role: str
    tone: str
    state: str
    is_master: bool
    answers: bool
    follows: str = ""
    is_deep: bool = False
    """It follows a slave."""
    observer: bool = False
    protocol: str = ""
    received: int | None = None
    durable: int | None = None
    applied: int | None = None
    confirmed: int | None = None
    lag_bytes: int | None = None
    lag_ms: int | None = None
    rate: float | None = None
    heard_ms: int = 0
    notes: tuple[Note, ...] = ()
    version: str = ""
    disk: float | None = None
    in_tps: float | None = None
    out_tps: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    name: str
    cluster: str
    tone: str
    word: str
    strong: str
    """The verdict's first sentence."""
    rest: str
    takes_messages: bool
    members: tuple[Member, ...]
    epoch: int | None = None
    level: str = ""
    end: int | None = None
    kind: str = ""
    register: Mapping[str, Any] = field(default_factory=dict)
    coordination: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Address of a member -> what it says of coordinator, lease and elections; nothing without a coordinator."""
    cuts: tuple[str, ...] = ()

    @property
    def severity(self) -> tuple[int, str]:
        return SEVERITY[self.tone], self.name

    @property
    def behind_most(self) -> int:
        """How far the last member is from the end, for the picture's window."""
        ends = [m.received for m in self.members if m.received is not None]
        others = [m.durable for m in self.members if m.durable is not None]
        return max((self.end or 0) - min([*ends, *others], default=self.end or 0), 0)


def draw_group(name: str, reports: Sequence[Report], now_ms: int) -> Group:
    """Returns the picture of one broker group."""
    master = _reigning(reports)
    said = _said_by(master, reports) if master is not None else {}
    slaves_followed = {r.address for r in reports if r.detail.get("role") == "slave"}
    members = [_member(report, master, said, slaves_followed, now_ms) for report in reports]
    known = {member.address for member in members}
    members += [_told_of(address, item) for address, item in said.items() if address not in known]
    members.sort(key=lambda m: (not m.is_master, m.is_deep, m.broker_id, m.address))
    ends = [m.received for m in members if m.received is not None]
    group = Group(
        name=name,
        cluster=next((report.cluster for report in reports if report.cluster), ""),
        tone=UNKNOWN, word="", strong="", rest="", takes_messages=False,
        members=tuple(members),
        epoch=max((_int(r.detail, "epoch") or 0 for r in reports), default=0) or None,
        level=str((master or reports[0]).detail.get("level", "")) if reports else "",
        end=max(ends, default=None),
        kind=next((report.kind for report in reports if report.kind), ""),
        register=_register(reports, master),
        coordination={
            r.address: r.detail["coordination"]
            for r in reports
            if r.answers and isinstance(r.detail.get("coordination"), Mapping)
        },
        cuts=tuple(f"{r.address}: {cut}" for r in reports for cut in r.detail.get("cuts") or ()),
    )  # fmt: skip
    return _judged(group, master, reports, now_ms)


def _said_by(master: Report, reports: Sequence[Report]) -> dict[str, Mapping[str, Any]]:
    """Returns what a master says of its slaves, by the address of each.

    RocketMQ knows a slave by where its connection came from: another port, and on a machine with several addresses
    another address. Such an entry belongs to a slave of the same host, else to one that no other entry names.
    """
    addresses = {report.address for report in reports}
    said: dict[str, Mapping[str, Any]] = {}
    strange: list[tuple[str, Mapping[str, Any]]] = []
    for item in master.detail.get("replicas") or ():
        if isinstance(item, Mapping):
            address = _host_of(item)
            if address in addresses or item.get("protocol") != "classic":
                said[address] = item
            else:
                strange.append((address, item))
    waiting = [report.address for report in reports if report is not master and report.address not in said]
    for address, item in strange:
        host = address.lstrip("/").rpartition(":")[0]
        same = [slave for slave in waiting if slave.rpartition(":")[0] == host]
        chosen = (same or waiting or [address])[0]
        said[chosen] = item
        if chosen in waiting:
            waiting.remove(chosen)
    return said


def draw(reports: Iterable[Report], now_ms: int) -> tuple[Group, ...]:
    """Returns the pictures of all groups, the worst first."""
    by_group: dict[str, list[Report]] = {}
    for report in reports:
        by_group.setdefault(report.group, []).append(report)
    groups = [draw_group(name, sorted(found, key=lambda r: r.broker_id), now_ms) for name, found in by_group.items()]
    return tuple(sorted(groups, key=lambda group: group.severity))


def _reigning(reports: Sequence[Report]) -> Report | None:
    """Returns the master that answers: of two that claim it, the one that writes, then the one of the later epoch."""
    found = [r for r in reports if r.answers and _is_master(r)]
    return max(found, key=lambda r: (r.detail.get("writable", True), r.detail.get("epoch") or 0), default=None)


def _is_master(report: Report) -> bool:
    role = report.detail.get("role")
    return role == "master" if role else report.broker_id == 0


def _member(
    report: Report, master: Report | None, said: Mapping[str, Mapping[str, Any]], slaves: set[str], now_ms: int
) -> Member:
    detail = report.detail
    entry = said.get(report.address, {})
    is_master = _is_master(report) and (master is None or report is master)
    received = _int(detail, "end") if detail else _int(entry, "received")
    follows = str(detail.get("master_replica") or "").partition("#")[0] or str(detail.get("master") or "")
    tone, state = _state(report, entry, is_master, now_ms)
    live = report.answers
    return Member(
        address=report.address,
        broker_id=report.broker_id,
        role=str(detail.get("brokerRole") or ("master" if _is_master(report) else "slave")),
        tone=tone,
        state=state,
        is_master=is_master,
        answers=live,
        follows="" if is_master else follows,
        is_deep=bool(follows) and follows in slaves,
        observer=bool(detail.get("observer") or entry.get("observer")),
        protocol=str(detail.get("protocol") or entry.get("protocol") or ""),
        received=received,
        durable=_int(detail, "flushed"),
        applied=_int(entry, "applied") if entry.get("protocol") == "extended" else (received if is_master else None),
        confirmed=_int(detail, "confirmed"),
        lag_bytes=0 if is_master else _lag(entry, detail, master, received),
        lag_ms=_int(entry, "lag_ms"),
        rate=entry.get("rate"),
        heard_ms=report.heard_ms,
        notes=_notes(report, entry, is_master),
        version=report.facts.get("tandemqVersion") or report.facts.get("brokerVersionDesc", ""),
        disk=_float(report.facts.get("commitLogDiskRatio")),
        in_tps=_first_float(report.facts.get("putTps")) if live else None,
        out_tps=_first_float(report.facts.get("getTransferredTps") or report.facts.get("getTransferedTps"))
        if live
        else None,
    )


def _told_of(address: str, entry: Mapping[str, Any]) -> Member:
    """Returns a member that only its master tells of: no name server knows it, or it is away."""
    away = "away" in str(entry.get("state", "")) or not entry.get("peer", True)
    is_well = bool(entry.get("in_sync"))
    return Member(
        address=address,
        broker_id=-1,
        role="SLAVE",
        tone=HEALTHY if is_well else ABSENT if away else CATCHING_UP,
        state=str(entry.get("state") or "not known"),
        is_master=False,
        answers=not away,
        observer=bool(entry.get("observer")),
        protocol=str(entry.get("protocol") or ""),
        received=_int(entry, "received"),
        durable=_int(entry, "durable"),
        applied=_int(entry, "applied"),
        lag_bytes=_int(entry, "lag_bytes"),
        lag_ms=_int(entry, "lag_ms"),
        rate=entry.get("rate"),
        notes=_entry_notes(entry),
    )


def _state(report: Report, entry: Mapping[str, Any], is_master: bool, now_ms: int) -> tuple[str, str]:
    detail = report.detail
    if not report.answers:
        if not report.heard_ms:
            return UNKNOWN, "does not answer"
        return ABSENT, f"absent for {duration(now_ms - report.heard_ms)}"
    if report.error and not detail:
        return UNKNOWN, "not told to this account"
    if report.kind == "RocketMQ 4":
        return UNKNOWN, "not told by RocketMQ 4"
    phase = str(detail.get("phase") or "")
    if _is_master(report):
        if detail.get("writable", True):
            return HEALTHY, phase or "open"
        if "poison" in f"{detail.get('refusal')} {detail.get('error')}".lower():
            return DANGER, "poisoned"
        return READ_ONLY, f"{phase}, read-only" if phase and phase != "open" else "read-only"
    if entry.get("in_sync"):
        return HEALTHY, "in sync"
    if entry:
        return CATCHING_UP, str(entry.get("state") or "behind")
    if detail.get("observer") and phase == "following":
        return HEALTHY, "following"
    return CATCHING_UP, phase or "not following"


def _notes(report: Report, entry: Mapping[str, Any], is_master: bool) -> tuple[Note, ...]:
    detail = report.detail
    notes = []
    if not report.answers:
        notes.append(
            Note(
                DANGER if is_master else ABSENT,
                "unreachable",
                report.error or "it does not answer",
                "check that its process runs and that its port can be reached; it goes on by itself when it is back",
            )
        )
        return (*notes, *_entry_notes(entry))
    if detail.get("waiting_for"):
        waits = ", ".join(str(item).partition("#")[0] for item in detail["waiting_for"])
        notes.append(
            Note(READ_ONLY, "waiting", f"it hears {waits} before it writes, lest it lacks what they have",
                 "start them; if one is gone for good: tandemq broker promote --force")
        )  # fmt: skip
    elif _is_master(report) and detail.get("refusal"):
        notes.append(Note(DANGER, "refuses sends", str(detail["refusal"]), str(detail.get("advice") or "")))
    if detail.get("error"):
        reason, text = str(detail.get("reason") or "error"), str(detail["error"])
        notes.append(Note(CATCHING_UP, reason, text, str(detail.get("advice") or "")))
    return (*notes, *_entry_notes(entry))


def _entry_notes(entry: Mapping[str, Any]) -> tuple[Note, ...]:
    if not entry.get("error") or entry.get("in_sync"):
        return ()
    reason = str(entry.get("reason") or "error")
    tone = DANGER if reason in ("disk-full", "diverged", "poisoned") else CATCHING_UP
    return (Note(tone, reason, str(entry["error"]), str(entry.get("advice") or "")),)


def _judged(group: Group, master: Report | None, reports: Sequence[Report], now_ms: int) -> Group:
    slaves = [m for m in group.members if not m.is_master and not m.observer]
    if master is None:
        heard = max((r.heard_ms for r in reports if not r.answers and _is_master(r)), default=0)
        since = f" for {duration(now_ms - heard)}" if heard else ""
        reads = any(r.answers for r in reports)
        rest = "Producers are refused or wait; consumers read on from the slaves." if reads else "Nobody answers."
        return replace(
            group, tone=DANGER, word=f"no master{since}", strong="No messages are taken.",
            rest=f"{rest} Nothing acknowledged by two copies is lost.", takes_messages=False,
        )  # fmt: skip
    if master.error and not master.detail:
        return replace(
            group, tone=UNKNOWN, word="not told", strong="It answers.", takes_messages=True,
            rest=f"This account is not told about replication: {master.error}.",
        )  # fmt: skip
    if group.kind == "RocketMQ 4":
        return replace(
            group, tone=UNKNOWN, word="no HA details", strong="It answers.", takes_messages=True,
            rest="RocketMQ 4 does not tell who follows whom or how far; 5.0 and TandemQ do.",
        )  # fmt: skip
    if not master.detail.get("writable", True):
        why = str(master.detail.get("refusal") or "it is read-only")
        return replace(group, tone=READ_ONLY, word="read-only", strong="No messages are taken now.",
                       rest=f"{why}.".replace("..", "."), takes_messages=False)  # fmt: skip
    well = [m for m in slaves if m.tone == HEALTHY]
    if not slaves:
        needs = _copies(group.level)
        if needs >= 2:
            return replace(group, tone=CATCHING_UP, word="one copy", strong="One copy only.", takes_messages=True,
                           rest="Sends are stored and answered SLAVE_NOT_AVAILABLE: no slave is there.")  # fmt: skip
        return replace(group, tone=HEALTHY, word="open, alone", strong="It takes messages.", takes_messages=True,
                       rest="There is no slave: each message is on this broker alone.")  # fmt: skip
    if len(well) < len(slaves):
        worst = max((m.lag_bytes or 0 for m in slaves), default=0)
        if not well:
            rest = f"No slave is in sync; the last is {size(worst)} behind. " + (
                "Sends that ask for copies are answered SLAVE_NOT_AVAILABLE." if _copies(group.level) >= 2 else ""
            )
            strong = "One copy only."
        else:
            rest = f"{plural(len(slaves) - len(well), 'slave')} not in sync; the last is {size(worst)} behind."
            strong = "Messages are copied, not everywhere."
        word = f"{len(well)} of {plural(len(slaves), 'slave')} in sync"
        return replace(group, tone=CATCHING_UP, word=word, strong=strong, rest=rest.strip(), takes_messages=True)
    return replace(group, tone=HEALTHY, word="healthy", strong=_promise(group), rest=_told_by(group, slaves),
                   takes_messages=True)  # fmt: skip


def _promise(group: Group) -> str:
    copies = _copies(group.level)
    if copies >= 2:
        where = "disks" if "durable" in group.level else "nodes"
        amount = group.level.partition(":")[0]
        return f"Every acknowledged message is on {'two' if amount == '2' else amount} {where}."
    return "Messages are acknowledged by the master alone, and copied at once."


def _told_by(group: Group, slaves: Sequence[Member]) -> str:
    text = f"{plural(len(slaves), 'slave')} in sync."
    return f"{text} {group.kind} tells how far each has received, not what is durable." \
        if group.kind.startswith("RocketMQ") else text  # fmt: skip


def _copies(level: str) -> int:
    amount = level.partition(":")[0]
    return int(amount) if amount.isdecimal() else 2 if amount else 1


def _register(reports: Sequence[Report], master: Report | None) -> Mapping[str, Any]:
    """Returns the register as the master has it, else as the first who answers."""
    for report in (*((master,) if master is not None else ()), *reports):
        found = report.detail.get("register")
        if report.answers and isinstance(found, Mapping) and found:
            return found
    return {}


def _lag(
    entry: Mapping[str, Any], detail: Mapping[str, Any], master: Report | None, received: int | None
) -> int | None:
    if entry:
        return _int(entry, "lag_bytes")
    end = _int(master.detail, "end") if master else None
    if end is not None and received is not None:
        return max(0, end - received)
    return _int(detail, "lag_bytes")


def _host_of(entry: Mapping[str, Any]) -> str:
    return str(entry.get("address") or str(entry.get("replica") or "").partition("#")[0])


def _int(found: Mapping[str, Any], name: str) -> int | None:
    value = found.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _float(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None


def _first_float(text: str | None) -> float | None:
    return _float(text.split()[0]) if text and text.split() else None
