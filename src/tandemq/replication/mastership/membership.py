"""Who counts for a reigning master, who joins and who leaves: changes of the register while it reigns.  Pure.

A replica is on record as in sync before its first ack counts, and stays there until every disk that would be asked has
what it may have confirmed: a crash of this master can't forget whom to ask (rule 3).
"""

from tandemq.codec.ha_reasons import Reason
from tandemq.codec.ha_register import Member, Register
from tandemq.codec.ha_session import Ack, Members, NewRegister
from tandemq.replication import register as registers
from tandemq.replication.decisions import Decision, Note
from tandemq.replication.epochs import ReplicaRecord, place_of
from tandemq.replication.mastership.classic import ClassicCounting
from tandemq.replication.mastership.confirming import Confirming
from tandemq.replication.mastership.core import MasterCore, Phase
from tandemq.replication.mastership.followers import Followers
from tandemq.replication.mastership.minting import Minting
from tandemq.replication.session import Session, SessionState


class Membership:
    """The replicas of a master's group: which of them are in sync, absent, joining."""

    def __init__(self, core: MasterCore, followers: Followers, confirming: Confirming) -> None:
        self._core, self._followers, self._confirming = core, followers, confirming
        self._classic = ClassicCounting(core)
        self.minting = Minting(core, followers)
        self.away: dict[str, tuple[float, int]] = {}
        """Replicas in sync that don't count now -> since when, and where the log ended then."""

    def reign_begins(self, out: list[Decision], now: float) -> None:
        """Counts nobody yet: all who were in sync are away until they follow, and who does not come leaves in time."""
        self.away = dict.fromkeys(sorted(self._core.record.in_sync), (now, self._core.log.end))
        self.count_size(out)

    def count_size(self, out: list[Decision]) -> None:
        """Sets what `majority` and `all` count against."""
        core = self._core
        if core.register is None:
            core.acks.set_members(out, core.record.members)
        else:
            core.acks.set_size(out, core.keeper.size(self._followers.reachable()))

    # --- counting ---------------------------------------------------------------------------------------------------

    def acked(self, out: list[Decision], session: Session, ack: Ack, now: float) -> None:
        """Counts an ack for its replica and epoch (rule 2): the current epoch, and not above what was sent."""
        if ack.epoch != self._core.number or not session.received <= ack.received <= session.sent:
            text = (
                f"ack of [{session.received}, {ack.received}) in epoch {ack.epoch}, "
                f"but it was sent up to {session.sent} in epoch {self._core.number}"
            )
            self._followers.close(out, session, Reason.BAD_ACK, text, now)
            return
        session.acked(ack.received, ack.durable, ack.applied)
        self.progress(out, session, now)

    def progress(self, out: list[Decision], session: Session, now: float) -> None:
        """Decides whether a slave whose offsets moved counts now, and completes what that allows."""
        core = self._core
        if session.received >= core.log.end:
            session.caught_up_at = now
        gap = core.log.end - session.received
        if session.state is SessionState.CATCHING_UP and gap < core.terms.gap_max and not session.observer:
            self._join(out, session)
        if session.state is SessionState.IN_SYNC and (not session.classic or self._classic.counts(out, session)):
            core.acks.acked(out, session.replica, session.received, session.durable, classic=session.classic)
            self._confirming.confirm(out)

    def reconsider(self, out: list[Decision], now: float) -> None:
        """Lets others join or count, because somebody knows more than before."""
        self.count_size(out)
        for session in list(self._followers.sessions.values()):
            if session.state is SessionState.CATCHING_UP or (session.classic and session.is_streaming):
                self.progress(out, session, now)

    def fell_behind(self, out: list[Decision], session: Session, now: float) -> None:
        """Stops waiting for a replica that has too much to catch up."""
        session.enter(SessionState.CATCHING_UP)
        self.depart(
            out, session, f"slave {session.replica} fell behind by {self._core.log.end - session.received} bytes", now
        )
        out.append(Note("fell-behind", f"replica {session.replica} fell behind and no longer counts", loud=True))

    # --- joining ----------------------------------------------------------------------------------------------------

    def _join(self, out: list[Decision], session: Session) -> None:
        """Puts a replica on record as in sync before its first ack counts, so that a crash can't forget whom to ask."""
        core = self._core
        if session.classic:
            self._classic.join(session)
            return
        if core.register is not None:
            self._join_by_register(out, session)
            return
        self.away.pop(session.replica, None)
        if session.replica in core.saved_in_sync:
            session.enter(SessionState.IN_SYNC)
        elif session.replica not in core.record.in_sync:
            here = place_of(session.replica)
            others = {replica for replica in core.record.members if place_of(replica) != here}
            core.save(
                out,
                in_sync=core.record.in_sync | {session.replica},
                members=frozenset({session.replica, *others}),
                before=None,
                alone_from=-1,
            )

    def _join_by_register(self, out: list[Decision], session: Session) -> None:
        """Decides what a replica that has nearly everything may become; the register says so before its acks count."""
        core = self._core
        register, replica = core.register, session.replica
        assert register is not None
        assert session.hello is not None
        if core.proposed is not None and replica in core.saved_in_sync and replica not in core.proposed.in_sync:
            return  # it is about to leave: what it acknowledges must not count
        if replica in core.saved_in_sync:
            if replica in core.keeper.counted_members:
                self.away.pop(replica, None)
                session.enter(SessionState.IN_SYNC)
                out.append(Note("in-sync", f"replica {replica} ({session.peer}) is in sync"))
        elif replica in register.member_ids:
            if replica not in register.in_sync and self._holds_confirmed(session):
                core.swap(out, self._settled_classic(registers.with_in_sync(register, {*register.in_sync, replica})))
        elif replica in register.joining_ids:
            if not core.keeper.waits_of_joining(replica) and self._holds_confirmed(session):
                joined = self._settled_classic(registers.with_joined(register, replica))
                core.swap(out, joined, alone_from=-1, blind_from=-1, before=None)
        elif session.hello.registers and core.keeper.has_stored(replica):
            newcomer = Member(replica, session.address, session.hello.broker_id)
            joined = registers.with_joining(register, newcomer)
            if not core.swap(out, joined):
                return
            given = next(one.broker_id for one in joined.joining if one.replica == replica)
            if given != session.hello.broker_id:
                text = f"replica {replica} has brokerId {given}: {session.hello.broker_id} is taken, or it has none"
                out.append(Note("broker-id", text, loud=True))

    def _settled_classic(self, register: Register) -> Register:
        """Forgets the copies of RocketMQ's slaves that were counted, if who comes in sync holds all of that."""
        return register if self._core.acks.counts_classic else registers.without_classic(register)

    def _holds_confirmed(self, session: Session) -> bool:
        """Returns whether it has all that was acknowledged with another copy, durably where such levels are used."""
        core = self._core
        others = core.terms.level.needed(core.acks.group_size) > 1
        owed = max(core.acks.acknowledged, core.confirmed if others else 0)
        return (session.durable if core.uses_durable else session.received) >= owed

    # --- leaving ----------------------------------------------------------------------------------------------------

    def depart(self, out: list[Decision], session: Session, text: str, now: float) -> None:
        """Stops counting a replica; it stays on record until this node's own disk has all it may have confirmed."""
        self.away[session.replica] = (now, self._core.log.end)
        self._core.acks.lost(out, session.replica, text)

    def drop_absent(self, out: list[Decision], now: float) -> None:
        """Lets one that was away for long leave, when every disk that is still asked has all it may have confirmed."""
        core = self._core
        gone = {
            replica: held
            for replica, (since, held) in self.away.items()
            if now - since >= core.terms.away_max and core.log.flushed >= held
        }
        stay = core.record.in_sync - gone.keys()
        if not gone or core.provisional or core.proposal is not None or core.acks.is_fenced:
            return
        if core.phase is not Phase.OPEN:
            return  # those who were heard are storing the register of the next epoch: it does not change meanwhile
        if any(self._followers.durable_of(replica) < max(gone.values()) for replica in stay):
            return
        for replica in gone:
            since, _ = self.away.pop(replica)
            if replica in core.record.in_sync:
                text = f"replica {replica} has been away for {now - since:.0f} s and leaves the in-sync set"
                out.append(Note("left", text, loud=True))
        if stay != core.record.in_sync:
            self._leave(out, stay)

    def _leave(self, out: list[Decision], stay: frozenset[str]) -> None:
        core = self._core
        register = core.register
        if register is None:
            core.save(out, in_sync=stay)
        else:
            core.swap(out, registers.with_in_sync(register, {core.record.replica, *stay}))

    def forget(self, replica: str, now: float, *, accept_loss: bool = False) -> tuple[str, list[Decision]]:
        """Takes a replica out of the group; why not, if it may not be, and what to do."""
        core, out = self._core, list[Decision]()
        register = core.register
        if not core.is_open:
            return f"this broker is no open master but {core.phase.value}", out
        if register is None:
            if replica not in core.record.members:
                return f"no replica {replica} is on record", out
            self.away.pop(replica, None)
            core.save(out, members=core.record.members - {replica}, in_sync=core.record.in_sync - {replica})
            return "", out
        if replica == core.record.replica:
            return "that is this broker itself: promote another one first", out
        if replica not in register.everybody:
            return f"the register does not name {replica}", out
        if core.proposed is not None or core.acks.is_fenced:
            return "the coordinator has not answered the last change of the register yet: try again in a moment", out
        if core.provisional and not accept_loss:
            return "this master reigns provisionally and may lack what that replica holds; use --accept-loss", out
        if replica in register.member_ids and not (accept_loss or self._is_safe_without(register, replica)):
            return (
                "not everything acknowledged is on the disk of another replica that stays yet; try again in a moment, "
                "or use --accept-loss"
            ), out
        for session in list(self._followers.sessions.values()):
            if session.replica == replica and not session.classic:
                text = f"the operator made the group forget {replica}"
                self._followers.close(out, session, Reason.NOT_NAMED, text, now)
        self.away.pop(replica, None)
        core.swap(out, registers.without(register, replica))
        out.append(Note("forgotten", f"the operator made the group forget {replica}", loud=True))
        return "", out

    def _is_safe_without(self, register: Register, replica: str) -> bool:
        """Returns whether all that was acknowledged is on a disk that stays, be it only this node's own."""
        core = self._core
        stay = (register.member_ids & core.saved_in_sync) - {replica, core.record.replica}
        owed = max(core.acks.acknowledged, core.confirmed)
        if not stay:
            return core.log.flushed >= owed
        return any(self._followers.durable_of(one) >= owed for one in stay)

    # --- what is on disk is told ------------------------------------------------------------------------------------

    def saved(self, out: list[Decision], record: ReplicaRecord, now: float) -> None:
        """Counts the replicas that the record names, which is on disk now."""
        core = self._core
        changed = record.in_sync != core.saved_in_sync
        core.saved_in_sync = record.in_sync
        core.saved_classic = record.register is not None and record.register.classic_from >= 0
        if not core.is_open:
            return
        if core.register is not None:
            self.tell_register(out, now)
            self.reconsider(out, now)
            self._confirming.confirm(out)
            return
        for session in self._followers.sessions.values():
            if session.state is SessionState.CATCHING_UP and session.replica in record.in_sync:
                session.enter(SessionState.IN_SYNC)
                core.acks.acked(out, session.replica, session.received, session.durable)
                out.append(Note("in-sync", f"replica {session.replica} ({session.peer}) is in sync"))
        self.minting.mint(out, now)
        if changed:
            # Who left is told too: a slave asks those on its record before it opens, and would wait for the one gone.
            core.acks.set_members(out, core.record.members)
            for session in self._followers.sessions.values():
                if session.is_streaming and not session.classic:
                    self.tell_members(out, session, now)
        self._confirming.confirm(out)

    def tell_members(self, out: list[Decision], session: Session, now: float) -> None:
        record = self._core.record
        self._followers.send(out, session, Members(sorted(record.members), sorted(record.in_sync)), now)

    def tell_register(self, out: list[Decision], now: float) -> None:
        """Sends the register to whoever follows and has an older one."""
        register = self._core.register
        if register is None or self._core.provisional:
            return
        for session in self._followers.sessions.values():
            if session.is_streaming and not session.classic and session.told_register < register.revision:
                session.told_register = register.revision
                self._followers.send(out, session, NewRegister(register), now)
