"""From a log that is whole and on disk to the first write (rule 1).  Pure.

The name of the new epoch is saved before `Opened`.  With a register its new version goes first to the disks of all who
were heard; where a coordinator has the register, it is swapped there.
"""

from tandemq.codec.ha_register import Register
from tandemq.codec.ha_session import NewRegister
from tandemq.replication import register as registers
from tandemq.replication.accession import Judgement
from tandemq.replication.decisions import Decision, Propose
from tandemq.replication.epochs import PROVISIONAL, Epoch, common_point, place_of
from tandemq.replication.mastership.asking import Asking
from tandemq.replication.mastership.core import MasterCore, Phase
from tandemq.replication.mastership.followers import Followers
from tandemq.replication.mastership.reign import Reign
from tandemq.replication.mastership.welcoming import Welcoming
from tandemq.replication.session import Session


class Opening:
    """How a candidate that has everything begins its reign."""

    def __init__(
        self, core: MasterCore, followers: Followers, reign: Reign, asking: Asking, welcoming: Welcoming
    ) -> None:
        self._core, self._followers, self._reign = core, followers, reign
        self._asking, self._welcoming = asking, welcoming

    def prepared(self, out: list[Decision], end: int, now: float) -> None:
        """Begins the reign: the log is whole and on disk up to `end`."""
        core, asking = self._core, self._asking
        if core.phase is not Phase.PREPARING:
            return  # one of those heard was lost meanwhile: all are asked again
        core.log.end = core.log.flushed = end
        if asking.is_going_provisional:
            self._open_provisionally(out, now)
        elif asking.judged is not None:
            fresh = asking.judgement()
            if fresh is None or fresh.register.version != asking.judged.register.version:
                # Somebody heard meanwhile knows of a newer reign.
                core.enter(Phase.ASKING)
                asking.decide(out, now)
            else:
                self._write_register(out, asking.judged, now)
        else:
            self._open_without_register(out, now)

    # --- provisionally ----------------------------------------------------------------------------------------------

    def _open_provisionally(self, out: list[Decision], now: float) -> None:
        """Opens the last holder alone: the register stays as it is, nobody promises to this reign."""
        core = self._core
        promise = core.record.promise
        epoch = Epoch(promise.number, PROVISIONAL + promise.id, core.log.end)
        history = core.record.history.opened(epoch.number, epoch.id, epoch.start)
        core.save(out, history=history, reigning=True, follows="")
        core.provisional, self._asking.is_going_provisional = True, False
        self._reign.begin(out, epoch, now)
        # What it asks for from now on is another epoch than the one it writes in.
        self._asking.campaign(out, promise.number, now)
        self._asking.decide(out, now)

    # --- by the register --------------------------------------------------------------------------------------------

    def _write_register(self, out: list[Decision], judgement: Judgement, now: float) -> None:
        """Writes the new epoch to the disks of all who were heard, then opens: the log is taken and on disk."""
        core = self._core
        promise, heard = core.record.promise, self._followers.heard()
        whole = frozenset(session.replica for session in heard if self._holds_all(session))
        register = registers.of_new_epoch(
            judgement.register,
            promise.number,
            promise.id,
            core.me,
            whole,
            judgement.replaces,
            pinned=core.is_coordinated and core.ordered,
        )
        if core.is_coordinated:
            self._propose_epoch(out, register)
            return
        self.take_register(out, register)
        core.enter(Phase.SWAPPING)
        self._asking.writes_to |= {s.replica for s in heard if s.replica in register.everybody}
        for session in heard:
            self._followers.send(out, session, NewRegister(register), now)
        self.open_if_stored(out, now)

    def _holds_all(self, session: Session) -> bool:
        core, hello = self._core, session.hello
        assert hello is not None
        end = min(hello.end, hello.durable) if core.uses_durable else hello.end
        agreed = common_point(core.record.history, core.log.end, session.history, end)
        return agreed == core.log.end

    def take_register(self, out: list[Decision], register: Register) -> None:
        """Puts the register of this node's new epoch on record and forgets what it settles."""
        core = self._core
        core.keeper.begin(register)
        core.save(out, **core.of_register(register), before=None, blind_from=-1, alone_from=-1, follows="")

    def open_if_stored(self, out: list[Decision], now: float) -> None:
        """Opens when everybody who was heard has stored the register."""
        core = self._core
        if core.is_coordinated:
            return  # what counts there is the coordinator's word, whatever the others have stored
        if core.phase is Phase.SWAPPING and all(core.keeper.has_stored(one) for one in self._asking.writes_to):
            self.open_reign(out, now)

    def open_reign(self, out: list[Decision], now: float) -> None:
        """Names the epoch in the history and lets those who were heard follow: the register counts."""
        core = self._core
        promise = core.record.promise
        epoch = Epoch(promise.number, promise.id, core.log.end)
        history = core.record.history.opened(epoch.number, epoch.id, epoch.start)
        core.save(out, history=history, reigning=True, follows="", complete=True)
        self._reign.begin(out, epoch, now)
        self._welcome_heard(out, now)

    def _welcome_heard(self, out: list[Decision], now: float) -> None:
        for session in self._followers.heard():
            self._welcoming.welcome(out, session, now)

    def _propose_epoch(self, out: list[Decision], register: Register) -> None:
        """Proposes the epoch to the coordinator.

        The order is: read, hear, take, flush, swap on what was read, open.

        From here on the promise can't be taken back: the swap may happen although nobody tells us so.
        """
        core = self._core
        core.save(out, before=None)
        core.enter(Phase.SWAPPING)
        core.proposal = register, {}
        out.append(Propose(core.register, register))

    # --- without a register -----------------------------------------------------------------------------------------

    def _open_without_register(self, out: list[Decision], now: float) -> None:
        """Opens a group that begins (case 4), or one of the version before, which gets its register later."""
        core = self._core
        record, promise, end = core.record, core.record.promise, core.log.end
        # Nobody was asked, and no operator has ordered it.
        blind = not (self._asking.ask or core.ordered)
        others = self._other_members()
        changes: dict[str, object] = {"members": others, "in_sync": frozenset()}
        if core.is_coordinated:
            new = registers.minted(core.new_id(), core.me, home=core.terms.home)
            self._propose_epoch(out, registers.of_new_epoch(new, promise.number, promise.id, core.me, frozenset()))
            return
        if not others:
            # Nobody else belongs to it: its register is on this disk, and so everywhere.
            new = registers.minted(core.new_id(), core.me)
            register = registers.of_new_epoch(new, promise.number, promise.id, core.me, frozenset())
            core.keeper.begin(register)
            changes = core.of_register(register)
        # Everything is on this node's own disk now, so nobody else holds what it could lose.
        epoch = Epoch(promise.number, promise.id, end)
        core.save(
            out,
            history=record.history.opened(epoch.number, epoch.id, epoch.start),
            reigning=True,
            follows="",
            complete=True,
            before=record.before if blind else None,
            blind_from=_since(record.blind_from, end) if blind else -1,
            alone_from=_since(record.alone_from, end) if blind else -1,
            **changes,
        )
        self._reign.begin(out, epoch, now)
        self._welcome_heard(out, now)

    def _other_members(self) -> frozenset[str]:
        record = self._core.record
        here = place_of(record.replica)
        known = record.members | record.in_sync | {record.follows}
        return frozenset(r for r in known if r and place_of(r) != here)


def _since(known: int, now: int) -> int:
    return known if known >= 0 else now
