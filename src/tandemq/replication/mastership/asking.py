"""Asking: with which number, whom this node must hear before it opens, and what it does meanwhile (rule 3).  Pure.

accession.py has the cases in which a register lets somebody open; here they are applied to those who are connected.
"""

from tandemq.codec.ha_session import Hello
from tandemq.replication.accession import Case, Heard, Judgement, judge, judge_elected
from tandemq.replication.decisions import Decision, Note, Prepare
from tandemq.replication.epochs import Promise, place_of
from tandemq.replication.mastership.core import MasterCore, Phase
from tandemq.replication.mastership.followers import Followers
from tandemq.replication.mastership.reign import Reign
from tandemq.replication.mastership.taking import Taking
from tandemq.replication.session import Session


class Asking:
    """A node on its way to open: it asks for promises, and goes on as soon as those it needs were heard."""

    def __init__(
        self,
        core: MasterCore,
        followers: Followers,
        reign: Reign,
        taking: Taking,
        *,
        ask: frozenset[str],
        group_exists: bool,
        now: float,
    ) -> None:
        self._core, self._followers, self._reign, self._taking = core, followers, reign, taking
        self.opened_without: frozenset[str] = frozenset()
        """Replicas that should have been heard before opening and were not."""
        self.judged: Judgement | None = None
        """By which case it opens; None without a register."""
        self.is_going_provisional = False
        self.writes_to: frozenset[str] = frozenset()
        """Replicas that must store the register of a new epoch before it opens."""
        self.group_exists = group_exists or core.record.register is not None
        """Somebody of this name has a register: a node without one never begins a group of its own."""
        # Not itself, nor what it was before it lost its disk.
        self.ask = frozenset(replica for replica in ask if place_of(replica) != place_of(core.record.replica))
        """Replicas that must be heard where there is no register."""
        self._asked_since = now
        self._allowed = False
        self._allowed_at: float | None = None
        self._said_waiting = False

    # --- asking -----------------------------------------------------------------------------------------------------

    def start(self, out: list[Decision], now: float) -> None:
        """Begins to ask; opens at once when there is nobody to ask."""
        core = self._core
        if core.register is None:
            # On record, so that a crash before it opens does not forget whom to ask.
            core.record = core.record.with_(in_sync=core.record.in_sync | self.ask)
        known = core.register
        self.campaign(out, max(core.record.promise.number, known.epoch if known is not None else 0), now)
        if self.waiting_for:
            names = ", ".join(sorted(self.waiting_for))
            out.append(Note("asking", f"this master asks {names} for what it may have lost before it takes writes"))
        self.decide(out, now)

    def campaign(self, out: list[Decision], above: int, now: float) -> None:
        """Chooses a number nobody has used, remembers it, and asks everybody for their promise."""
        core = self._core
        record = core.record
        number = max(above, record.promise.number, record.history.last_number, record.campaigned) + 1
        before = record.before if record.before is not None else record.promise
        core.save(out, promise=Promise(number, core.new_id()), before=before, campaigned=number)
        self._asked_since = now
        for session in self._followers.sessions.values():
            if session.nonce:
                self._followers.challenge(out, session, now)

    def ask_also(self, hello: Hello) -> None:
        """Asks everybody whom the replicas know of, but our own former self: there is no memory of what happened."""
        here = place_of(self._core.record.replica)
        self.ask |= {replica for replica in (hello.replica, *hello.members) if place_of(replica) != here}

    def allow(self, out: list[Decision], now: float, *, group_gone: bool = False) -> None:
        """Takes the operator's word that a loss is accepted.

        Asks everybody all the same, then opens without those that don't come.

        `group_gone`: of all brokers that answer nobody has a register, so that a group that was here is begun anew.
        """
        self._allowed = True
        if self._allowed_at is None:
            self._allowed_at = now
        if group_gone and self.group_exists and self.judgement() is None:
            text = "the group that was here is begun anew: nobody who answers has its register"
            out.append(Note("opened-without", text, loud=True))
            self.group_exists = False
        self.decide(out, now)

    def left(self, out: list[Decision], session: Session, now: float) -> None:
        """Notes that a session has ended."""
        core = self._core
        lost = core.phase in (Phase.TAKING, Phase.PREPARING, Phase.SWAPPING) and session.replica in self.writes_to
        if lost and not self.is_going_provisional and not core.is_coordinated:
            # It may or may not have stored the register: all are asked again, with a higher number. With a coordinator
            # the register is not theirs to store, and whoever was heard keeps its promise without a session too.
            core.enter(Phase.ASKING)
            self.campaign(out, core.number, now)

    def next_deadlines(self) -> list[float]:
        """Returns when `decide` has something to do if nothing else happens."""
        times = []
        if self._core.phase is Phase.ASKING and not self._said_waiting:
            times.append(self._asked_since + self._core.terms.rejoin_wait)
        if self._core.phase is Phase.ASKING and self._allowed_at is not None:
            times.append(self._allowed_at + self._core.terms.loss_wait)
        return times

    # --- judging ----------------------------------------------------------------------------------------------------

    @property
    def waiting_for(self) -> frozenset[str]:
        """Replicas that have not been heard in the current asking."""
        if self._core.phase is not Phase.ASKING and not self._core.provisional:
            return frozenset()
        judgement = self.judgement()
        if judgement is not None:
            return judgement.missing
        heard = {place_of(session.replica) for session in self._followers.heard()}
        return frozenset(replica for replica in self.ask if place_of(replica) not in heard)

    def judgement(self) -> Judgement | None:
        """Returns by which case this node may open, and whom it must still hear; None if nobody has a register."""
        core = self._core
        record, log = core.record, core.log
        me = Heard(record.replica, record.register, record.complete)
        heard = [
            Heard(session.replica, session.hello.register, session.hello.clean)
            for session in self._followers.heard()
            if session.hello is not None
        ]
        if core.is_coordinated:
            register = core.register
            return judge_elected(me, register, heard) if register is not None else None
        lost = log.end == log.first and record.confirmed > log.end
        return judge(me, record.has_opened and not lost, heard)

    # --- deciding ---------------------------------------------------------------------------------------------------

    def decide(self, out: list[Decision], now: float) -> None:
        """Opens, or takes from the furthest first, as soon as those who must be heard were heard."""
        if self._core.phase is not Phase.ASKING and not self._core.provisional:
            return
        judgement = self.judgement()
        if judgement is not None:
            self._decide_by_register(out, judgement, now)
        elif not self.group_exists:
            self._decide_without_register(out, now)
        elif self._has_waited(now):
            self._say_waiting(out, frozenset({"a replica that has the register of the group"}))

    def _decide_by_register(self, out: list[Decision], judgement: Judgement, now: float) -> None:
        core, register = self._core, judgement.register
        if judgement.case is Case.NOT_NAMED or (judgement.yields and not core.ordered):
            text = f"{register.holder} reigns or last reigned in epoch {register.epoch}"
            if judgement.case is Case.NOT_NAMED:
                text += f", and the register does not name {core.record.replica}"
            self._reign.step_down(out, text, register.epoch, now)
        elif judgement.may_open:
            self._accede(out, judgement, frozenset(), now)
        elif self._allowed_at is not None and now >= self._allowed_at + core.terms.loss_wait:
            self._say_without(out, judgement.missing)
            self._accede(out, judgement, judgement.missing, now)
        elif core.provisional or self._allowed:
            return
        elif judgement.may_open_provisionally and not core.ordered and self._may_be_alone(judgement, now):
            names = ", ".join(sorted(judgement.missing))
            text = f"opens provisionally, at one copy, until {names} can be heard"
            out.append(Note("opened-provisionally", text, loud=True))
            self.judged, self.is_going_provisional = judgement, True
            core.enter(Phase.PREPARING)
            out.append(Prepare())
        elif self._has_waited(now):
            self._say_waiting(out, judgement.missing)

    def _decide_without_register(self, out: list[Decision], now: float) -> None:
        """Applies the rules of the version before, until the group has a register."""
        missing = self.waiting_for
        if missing:
            over = self._has_waited(now)
            if not (self._allowed or (over and not self._core.terms.strict_open)):
                if over:
                    self._say_waiting(out, missing)
                return
            self._say_without(out, missing)
        self.opened_without = missing
        self.judged = None
        self._taking.begin(out, None, now)

    def _accede(self, out: list[Decision], judgement: Judgement, without: frozenset[str], now: float) -> None:
        """Takes the furthest log and then begins the reign: everybody needed was heard."""
        core = self._core
        if core.provisional:
            self._reign.end(out, "it has been heard and opens anew", core.number, asking=True)
            core.provisional = False
        self.judged, self.is_going_provisional = judgement, False
        self.opened_without = without
        named = judgement.register.everybody
        self.writes_to = frozenset(s.replica for s in self._followers.heard() if s.replica in named)
        self._taking.begin(out, judgement.register, now)

    def _may_be_alone(self, judgement: Judgement, now: float) -> bool:
        return judgement.was_alone or (self._has_waited(now) and not self._core.terms.strict_open)

    def _has_waited(self, now: float) -> bool:
        return now >= self._asked_since + self._core.terms.rejoin_wait

    def _say_without(self, out: list[Decision], missing: frozenset[str]) -> None:
        names = ", ".join(sorted(missing))
        out.append(Note("opened-without", f"goes on without {names}: what only they hold is lost", loud=True))

    def _say_waiting(self, out: list[Decision], missing: frozenset[str]) -> None:
        if self._said_waiting:
            return
        self._said_waiting = True
        names = ", ".join(sorted(missing))
        text = (
            f"{names} did not come within {self._core.terms.rejoin_wait:g} s; they may hold acknowledged messages that "
            "this master lost, so it stays read-only. Start them, or allow it with haOpenWithoutReplicas=true or "
            "`tandemq broker promote --accept-loss`"
        )
        out.append(Note("read-only", text, loud=True))
