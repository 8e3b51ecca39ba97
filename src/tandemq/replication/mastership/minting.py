"""How a group of the version before gets its register.  Pure."""

from tandemq.codec.ha_register import Member, Register
from tandemq.codec.ha_session import NewRegister, Registered
from tandemq.replication import register as registers
from tandemq.replication.decisions import Decision, Note
from tandemq.replication.mastership.core import MasterCore
from tandemq.replication.mastership.followers import Followers
from tandemq.replication.session import Session, SessionState


class Minting:
    """The register that a group is about to get: as soon as all on record are in sync and know what it is.

    On the others' disks first: should this master be lost on the way, whoever is asked tells of it.
    """

    def __init__(self, core: MasterCore, followers: Followers) -> None:
        self._core, self._followers = core, followers
        self._register: Register | None = None

    def stored(self, out: list[Decision], session: Session, stored: Registered, now: float) -> None:
        """Notes that a slave has a register on its disk, perhaps the one that is being minted."""
        new = self._register
        if new is not None and stored.epoch == self._core.number and stored.revision == new.revision:
            session.has_minted = True
            self.mint(out, now)

    def mint(self, out: list[Decision], now: float) -> None:
        """Tells all on record of the new register, and takes it when all have it."""
        core = self._core
        if core.register is not None or not core.is_open or not core.record.members:
            return
        in_sync = (s for s in self._followers.sessions.values() if s.state is SessionState.IN_SYNC and not s.classic)
        found = {session.replica: session for session in in_sync}
        if any(one not in found or not _knows_registers(found[one]) for one in core.record.members):
            return
        others = [found[one] for one in sorted(core.record.members)]
        if self._register is None or self._register.member_ids != {core.record.replica, *core.record.members}:
            self._register = new = self._begun(others, self._register)
            for session in others:
                session.has_minted = False
                self._followers.send(out, session, NewRegister(new), now)
        if all(session.has_minted for session in others):
            register, self._register = self._register, None
            core.keeper.begin(register)
            for session in others:
                core.keeper.stored(session.replica, register.epoch, register.revision)
            out.append(Note("register", f"the group has a register now: {', '.join(sorted(register.member_ids))}"))
            core.save(out, **core.of_register(register))

    def _begun(self, others: list[Session], before: Register | None) -> Register:
        core = self._core
        members = [Member(s.replica, s.address, s.hello.broker_id if s.hello else 0) for s in others]
        new = registers.minted(core.new_id() if before is None else before.group_id, core.me, members)
        return registers.of_new_epoch(new, core.number, core.record.promise.id, core.me, frozenset(core.record.members))


def _knows_registers(session: Session) -> bool:
    return session.hello is not None and session.hello.registers
