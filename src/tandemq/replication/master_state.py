"""The master's side of replication: who follows, what counts, when it may write.

Pure: bytes and `now` in, decisions out.

    ASKING     ──▶ TAKING        everybody it needs was heard, and one of them has more of the log
    ASKING     ──▶ PREPARING     everybody was heard and nobody has more; or it may open alone, provisionally
    TAKING     ──▶ PREPARING     it has what the furthest replica has
    PREPARING  ──▶ SWAPPING      its log is on disk: the register of its epoch goes to all it heard
    PREPARING  ──▶ OPEN          provisionally, or in a group that has no register yet
    SWAPPING   ──▶ OPEN          everybody it heard has stored the register
    TAKING     ──▶ ASKING        the donor was lost, or another replica that the opening needs
    PREPARING  ──▶ ASKING        such a replica was lost, or a newer register was met
    SWAPPING   ──▶ ASKING        such a replica was lost, or has promised a higher number
    OPEN       ──▶ ASKING        a higher number was promised, or a reign that nobody joined meets its group
    OPEN       ──▶ TAKING        a provisional reign has heard everybody, and one of them has more
    OPEN       ──▶ PREPARING     a provisional reign has heard everybody and opens anew
    any state  ──▶ DEPOSED       a higher epoch reigns, or the operator's order

`tests/sim/test_state_diagrams.py` compares this list, and that of `slave_state`, with what the simulator sees.

Rules (design: the rules that make it safe), and where each one lives, in `mastership/`:

 1. A history has a name            opening.py: the epoch is saved before Opened; `common_point` in epochs.py.
 2. An ack belongs to a replica     membership.py `acked`: current epoch, this session, not above `sent`, after START
    and an epoch                    was checked (welcoming.py); followers.py `replace`: one session per identity.
                                    AckQueue counts copies by identity.
 3. A master that crashed asks      asking.py: found reigning, it must hear all that were in sync; they promise its
    before it writes                new number before they tell their offsets; taking.py takes from the furthest.
                                    membership.py: a replica is saved as in sync before its first ack counts.
 4. Cutting is the last resort      Truncate and Reset save aside what they cut.
 5. A higher epoch ends a reign     rivals.py: all ways end in `Reign.step_down` or ask again with a higher number.
 6. Readers see what can't vanish   confirming.py: `confirmed`, sent with every data frame.
 7. Durable means fdatasync         `flushed` comes only from the store; a slave's durable only from its acks.
"""

from collections.abc import Callable

from tandemq.codec import ha_session as ha
from tandemq.codec.ha_classic import Chunk, Head
from tandemq.codec.ha_reasons import Reason
from tandemq.codec.ha_register import Register
from tandemq.codec.ha_session import Ack, Farewell, Hello, Preamble, Refuse, Registered, Start, Vouched
from tandemq.replication import register as registers
from tandemq.replication.acks import AckQueue
from tandemq.replication.decisions import Decision, LogEnds
from tandemq.replication.epochs import ReplicaRecord
from tandemq.replication.mastership.asking import Asking
from tandemq.replication.mastership.classic import ClassicFollowers
from tandemq.replication.mastership.confirming import Confirming
from tandemq.replication.mastership.core import MasterCore, MasterTerms, Phase
from tandemq.replication.mastership.followers import Followers
from tandemq.replication.mastership.greeting import Greeting
from tandemq.replication.mastership.housekeeping import Housekeeping
from tandemq.replication.mastership.membership import Membership
from tandemq.replication.mastership.opening import Opening
from tandemq.replication.mastership.pacing import Pacing
from tandemq.replication.mastership.reign import Reign
from tandemq.replication.mastership.rivals import Rivals
from tandemq.replication.mastership.streaming import Streaming
from tandemq.replication.mastership.taking import Taking
from tandemq.replication.mastership.welcoming import Welcoming
from tandemq.replication.mastership.word import MembersWord
from tandemq.replication.register import RegisterKeeper
from tandemq.replication.session import Departure, Session, SessionState


class MasterState:
    """All sessions of a master and its right to write: puts the parts together and hands each input to the one whose
    rule it is."""

    def __init__(
        self,
        *,
        record: ReplicaRecord,
        terms: MasterTerms,
        log: LogEnds,
        acks: AckQueue,
        new_id: Callable[[], str],
        now: float,
        ask: frozenset[str] = frozenset(),
        ordered: bool = False,
        group_exists: bool = False,
        register: Register | None = None,
    ) -> None:
        """`ask`: replicas that must be heard before this node writes where there is no register; see `must_ask`.

        `ordered`: an operator promotes this node.  `group_exists`: somebody of this name has a register, so that a node
        without one never begins a group of its own.  `register`: what the coordinator has, where there is one.
        """
        self.terms = terms
        self.log = log
        self.acks = acks
        self.began_at = now
        self.core = core = MasterCore(record, terms, log, acks, new_id, register, ordered)
        self.followers = followers = Followers(core, self._left)
        self.sessions = followers.sessions
        self.streaming = Streaming(core, followers)
        self.pacing = Pacing(core, followers)
        self._word = MembersWord(core, followers)
        self._confirming = Confirming(core, followers)
        self.membership = Membership(core, followers, self._confirming)
        reign = Reign(core, followers, self.membership, self._confirming)
        self._welcoming = Welcoming(core, followers, self.membership)
        self._taking = Taking(core, followers)
        self.asking = Asking(core, followers, reign, self._taking, ask=ask, group_exists=group_exists, now=now)
        self._opening = Opening(core, followers, reign, self.asking, self._welcoming)
        self._rivals = Rivals(core, followers, reign, self.asking, self._opening)
        self._greeting = Greeting(core, followers, self.asking, self._rivals, self._welcoming)
        self._classic = ClassicFollowers(core, followers, self._welcoming.start_of_empty, self.membership.progress)
        self._housekeeping = Housekeeping(
            core,
            followers,
            self.membership,
            self.streaming,
            self._welcoming,
            serves_classic=self._classic.are_served,
        )

    # --- looking at it ----------------------------------------------------------------------------------------------

    @property
    def phase(self) -> Phase:
        return self.core.phase

    @property
    def record(self) -> ReplicaRecord:
        return self.core.record

    @property
    def number(self) -> int:
        """The epoch this node reigns in, or asks to open."""
        return self.core.number

    @property
    def confirmed(self) -> int:
        """Everything below may be seen by readers."""
        return self.core.confirmed

    @property
    def provisional(self) -> bool:
        """Open, but alone."""
        return self.core.provisional

    @property
    def keeper(self) -> RegisterKeeper:
        return self.core.keeper

    @property
    def register(self) -> Register | None:
        return self.core.register

    @property
    def proposed(self) -> Register | None:
        """What the coordinator was asked to write and has not answered."""
        return self.core.proposed

    @property
    def departures(self) -> dict[str, Departure]:
        """Identity or host -> how its last session ended; bounded."""
        return self.followers.departures

    @property
    def waiting_for(self) -> frozenset[str]:
        """Replicas that have not been heard in the current asking."""
        return self.asking.waiting_for

    @property
    def opened_without(self) -> frozenset[str]:
        """Replicas that should have been heard before opening and were not."""
        return self.asking.opened_without

    # --- opening ----------------------------------------------------------------------------------------------------

    def start(self, now: float) -> list[Decision]:
        """Begins to ask; opens at once when there is nobody to ask."""
        out: list[Decision] = []
        self.asking.start(out, now)
        return out

    def allow(self, now: float, *, group_gone: bool = False) -> list[Decision]:
        """Takes the operator's word that a loss is accepted: see `Asking.allow`."""
        out: list[Decision] = []
        self.asking.allow(out, now, group_gone=group_gone)
        return out

    def prepared(self, end: int, now: float) -> list[Decision]:
        """Begins the reign: the log is whole and on disk up to `end`."""
        out: list[Decision] = []
        self._opening.prepared(out, end, now)
        return out

    def saved(self, record: ReplicaRecord, now: float) -> list[Decision]:
        """Counts the replicas that the record names, because it is on disk."""
        out: list[Decision] = []
        self.membership.saved(out, record, now)
        return out

    def swapped(self, register: Register, now: float) -> list[Decision]:
        """Takes what was proposed for true: the coordinator has it."""
        out: list[Decision] = []
        self._rivals.swapped(out, register, now)
        return out

    def learned(self, register: Register, now: float) -> list[Decision]:
        """Takes the register that the coordinator has: perhaps our own proposal, perhaps somebody else's."""
        out: list[Decision] = []
        self._rivals.learned(out, register, now)
        return out

    def ask_word(self, now: float) -> list[Decision]:
        """Asks those who follow for their word not to stand, as often as is due while the coordinator is away."""
        out: list[Decision] = []
        self._word.ask(out, now)
        return out

    def word_until(self, now: float) -> float:
        """Returns until when all whom a candidate would have to hear have given their word."""
        return self._word.until(now)

    def order(self, number: int, text: str, now: float) -> list[Decision]:
        """Ends the reign: somebody told of a higher epoch (registration, promote order), or the operator demotes."""
        out: list[Decision] = []
        self._rivals.ordered(out, number, text, now)
        return out

    def forget(self, replica: str, now: float, *, accept_loss: bool = False) -> tuple[str, list[Decision]]:
        """Takes a replica out of the group; why not, if it may not be, and what to do."""
        return self.membership.forget(replica, now, accept_loss=accept_loss)

    # --- connections ------------------------------------------------------------------------------------------------

    def connected(self, session_id: int, peer: str, now: float) -> list[Decision]:
        """Begins a session with a slave whose connection was accepted; it speaks first."""
        return self.followers.connected(session_id, peer, now)

    def disconnected(self, session_id: int, now: float, reason: Reason = Reason.LOST, text: str = "") -> list[Decision]:
        """Ends a session whose connection broke, or which the shell closed."""
        out: list[Decision] = []
        self.followers.lost(out, session_id, reason, text, now)
        return out

    def receive(self, session_id: int, data: bytes | memoryview, now: float) -> list[Decision]:
        """Bytes from a slave, however split."""
        out: list[Decision] = []
        session = self.sessions.get(session_id)
        if session is None or not len(data):
            return out
        session.last_heard = now
        if not session.spoke:
            session.spoke = True
            if ha.is_tls(data[0]):
                text = f"{session.peer} speaks TLS, this HA port does not (haTlsEnable=false)"
                self.followers.close(out, session, Reason.TLS, text, now)
                return out
            session.classic = not ha.is_extended(data[0])
        if session.classic:
            self._classic.receive(out, session, data, now)
        else:
            self.followers.read(out, session, data, now, self._dispatch)
        return out

    def _dispatch(self, out: list[Decision], session: Session, event: ha.Event, now: float) -> None:
        if isinstance(event, Ack) and session.is_streaming:
            self.membership.acked(out, session, event, now)
        elif isinstance(event, Preamble) and session.state is SessionState.CONNECTED:
            self._greeting.on_preamble(out, session, event, now)
        elif isinstance(event, Hello) and session.state is SessionState.CHALLENGED:
            self._greeting.on_hello(out, session, event, now)
        elif isinstance(event, Start) and session.state is SessionState.CHECKING:
            self._welcoming.started(out, session, event, now)
        elif isinstance(event, Vouched):
            self._word.answered(session, event)
        elif isinstance(event, Registered):
            self._on_registered(out, session, event, now)
        elif isinstance(event, Head | Chunk) and session.state is SessionState.DONATING:
            self._taking.received(out, session, event, now)
        elif isinstance(event, Refuse):
            self._rivals.refused(out, session, event, now)
        elif isinstance(event, Farewell):
            self.followers.bid_farewell(out, session, event.code, event.text, now)
        elif isinstance(event, Chunk) and event.last and not session.frames.sound:
            self.followers.close(out, session, Reason.CORRUPT, "log bytes nobody asked for, and damaged", now)
        elif isinstance(event, Ack | Head | Chunk | Start | Hello):
            pass  # on its way when we challenged again or asked for something else; the session goes on from there
        else:
            self.followers.unexpected(out, session, event, now)

    def _on_registered(self, out: list[Decision], session: Session, stored: Registered, now: float) -> None:
        """Notes that a replica has a register on its disk, which may let this node open, or others join and count."""
        self.membership.minting.stored(out, session, stored, now)
        if not session.replica or not self.keeper.stored(session.replica, stored.epoch, stored.revision):
            return
        if self.phase is Phase.SWAPPING:
            self._opening.open_if_stored(out, now)
        elif self.phase is Phase.OPEN:
            self.membership.reconsider(out, now)

    def _left(self, out: list[Decision], session: Session, text: str, now: float) -> None:
        """Tells the parts that a session has ended: the opening may have needed it, and it may have counted."""
        self._taking.left(session)
        self.asking.left(out, session, now)
        if session.state is SessionState.IN_SYNC and not self.followers.counts_elsewhere(session):
            self.membership.depart(out, session, text, now)

    # --- watermarks and time ----------------------------------------------------------------------------------------

    def appended(self, end: int) -> list[Decision]:
        """Notes that the log grew to `end` by writes of this master."""
        out: list[Decision] = []
        self._confirming.appended(out, end)
        return out

    def flushed(self, offset: int) -> list[Decision]:
        """Notes that fdatasync returned for everything below `offset`."""
        out: list[Decision] = []
        self._confirming.flushed(out, offset)
        return out

    def renewed(self, flushed: int) -> list[Decision]:
        """Looks again at what may be acknowledged and confirmed, because the lease was renewed."""
        out: list[Decision] = []
        self.acks.settle(out)
        self._confirming.flushed(out, flushed)
        return out

    def retained(self, first: int, now: float) -> list[Decision]:
        """Notes that old segments were deleted: the log begins at `first` now."""
        out: list[Decision] = []
        self._housekeeping.retained(out, first, now)
        return out

    def news(self, now: float) -> list[Decision]:
        """Sends the confirmed offset to slaves that have all bytes but not the news; called soon after it moved."""
        out: list[Decision] = []
        self.streaming.news(out, now)
        return out

    def tick(self, now: float) -> list[Decision]:
        """Heartbeats, silence, replicas that stay away, the end of the asking."""
        out: list[Decision] = []
        self._housekeeping.tick(out, now)
        self.asking.decide(out, now)
        return out

    def next_deadline(self, now: float) -> float:
        """Returns when `tick` has something to do if nothing else happens."""
        return max(min([self._housekeeping.next_deadline(now), *self.asking.next_deadlines()]), now)

    def stop(self, now: float) -> list[Decision]:
        """Stops cleanly: the log is flushed, so nobody holds what this node lacks; slaves are told."""
        out: list[Decision] = []
        core = self.core
        self.followers.close_all(out, Reason.STOPPING, "the master is stopping", now)
        register = core.register
        if core.is_open and register is None:
            core.save(out, reigning=False, in_sync=frozenset())
        elif core.is_regular and register is not None:
            # All that was acknowledged is on this node's own disk: nobody has to be heard for it.
            if self.log.flushed >= self.log.end and not core.is_coordinated:
                register = registers.with_in_sync(register, {core.record.replica})
                core.keeper.swap(core.register, register)
            core.save(out, **core.of_register(register), reigning=False)
        elif core.is_open:
            core.save(out, reigning=False)
        return out
