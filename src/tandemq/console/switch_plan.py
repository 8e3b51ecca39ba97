"""What will happen when a slave is made the master of its group, said before it is done. Pure."""

from dataclasses import dataclass

from tandemq.console.picture import CATCHING_UP, DANGER, HEALTHY, Group, Member, Note
from tandemq.console.texts import size
from tandemq.errors import ClientError

ROLES = ("SYNC_MASTER", "ASYNC_MASTER")


@dataclass(frozen=True, slots=True)
class SwitchPlan:
    group: str
    address: str
    role: str
    """What the group's master is, so that a switch changes who writes and nothing else."""
    steps: tuple[str, ...]
    warnings: tuple[Note, ...]


def plan_switch(group: Group, address: str) -> SwitchPlan:
    """Returns the plan; ClientError if that member can't be made the master from here."""
    member = next((m for m in group.members if m.address == address), None)
    if member is None:
        raise ClientError(f"{address[:80]!r} is no member of {group.name}: choose a slave on the Replication page")
    if group.kind != "TandemQ":
        raise ClientError(
            f"{group.kind or 'a broker that never answered'} can't be told to switch its master by TandemQ"
        )
    if member.is_master and member.answers and group.takes_messages:
        raise ClientError(f"{address} is the master already")
    if not member.answers:
        raise ClientError(f"{address} does not answer, so it can't become the master: start it first")
    master = next((m for m in group.members if m.is_master and m is not member), None)
    role = master.role if master is not None and master.role in ROLES else ROLES[0]
    return SwitchPlan(group.name, address, role, tuple(_steps(group, member, master)), tuple(_warnings(member, master)))


def told(group: Group | None) -> str:
    """Returns who reigns, for the audit: before and after."""
    if group is None:
        return "not known"
    master = next((m for m in group.members if m.is_master and m.answers), None)
    epoch = f", epoch {group.epoch}" if group.epoch else ""
    return f"master {master.address}{epoch}" if master is not None else f"no master{epoch}"


def _steps(group: Group, member: Member, master: Member | None) -> list[str]:
    steps = []
    if master is None:
        steps.append("no other broker of the group is a master now, so nobody has to hand over")
    elif master.answers:
        steps.append(
            f"{master.address} takes no more messages, gives its slaves all it has, then follows {member.address}"
        )
    else:
        steps.append(
            f"{master.address}, the master, does not answer and hands nothing over; when it is back it follows "
            f"{member.address}, and what it alone has is cut off and saved aside on it"
        )
    epoch = f" in epoch {group.epoch + 1}" if group.epoch else ""
    steps.append(f"{member.address} becomes the master{epoch} and opens when it has heard all who may hold more")
    others = [m.address for m in group.members if m is not member and m is not master and not m.observer]
    if others:
        steps.append(f"{', '.join(others)} {'follows' if len(others) == 1 else 'follow'} it")
    steps.append("producers are refused or wait for a moment and then send to the new master; consumers go on")
    return steps


def _warnings(member: Member, master: Member | None) -> list[Note]:
    found = []
    if member.observer:
        found.append(
            Note(DANGER, "observer", f"{member.address} is no member of the group and would begin one of its own",
                 "choose a member")
        )  # fmt: skip
    elif member.tone != HEALTHY and master is not None and master.answers:
        behind = f", {size(member.lag_bytes)} behind" if member.lag_bytes else ""
        found.append(
            Note(CATCHING_UP, "not in sync", f"{member.address} is {member.state}{behind}: the broker will refuse",
                 "wait until it is in sync, or choose another slave")
        )  # fmt: skip
    return found
