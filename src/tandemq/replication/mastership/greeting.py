"""What a master does with those who greet it: refuse, hear, or let follow.  Pure."""

from tandemq.codec import ha_session as ha
from tandemq.codec.ha_reasons import Reason
from tandemq.codec.ha_seal import POLY1305
from tandemq.codec.ha_session import Hello, Preamble
from tandemq.replication.decisions import Decision
from tandemq.replication.epochs import Promise, from_items
from tandemq.replication.mastership.asking import Asking
from tandemq.replication.mastership.core import MasterCore, Phase
from tandemq.replication.mastership.followers import Followers
from tandemq.replication.mastership.rivals import Rivals
from tandemq.replication.mastership.taking import holds_other_reign
from tandemq.replication.mastership.welcoming import Welcoming
from tandemq.replication.session import Session, SessionState


class Greeting:
    """From the first word of our protocol to the WELCOME."""

    def __init__(
        self, core: MasterCore, followers: Followers, asking: Asking, rivals: Rivals, welcoming: Welcoming
    ) -> None:
        self._core, self._followers, self._asking = core, followers, asking
        self._rivals, self._welcoming = rivals, welcoming

    def on_preamble(self, out: list[Decision], session: Session, preamble: Preamble, now: float) -> None:
        if self._core.phase is Phase.DEPOSED:
            session.nonce = preamble.nonce
            text = "this broker was deposed and is no master now"
            self._followers.close(out, session, Reason.NOT_MASTER, text, now)
        else:
            self._followers.greeted(out, session, preamble, now)

    def on_hello(self, out: list[Decision], session: Session, hello: Hello, now: float) -> None:
        """Takes what a peer tells: who it is, what it has promised and what it has."""
        core, followers = self._core, self._followers
        refusal = followers.unproven(session, hello) or followers.misfit(session, hello, core.log.segment_size)
        if refusal is not None:
            followers.close(out, session, *refusal, now)
            return
        if not session.proven and not followers.give_slot(out, session, hello.replica, now):
            return
        promised = Promise(hello.promised_number, hello.promised_id)
        session.observer, session.packs = hello.observer, hello.compression == ha.ZSTD
        session.fast_sums = hello.sums == POLY1305
        if session.observer and (promised != core.record.promise or not core.is_regular):
            # What an observer promised, saw or holds decides nothing here: it comes again when this master is open.
            text = f"observer {hello.replica} is served when this master is open"
            followers.close(out, session, Reason.NOT_MASTER, text, now)
            return
        if not session.observer and self._rivals.met_another_register(out, session, hello, now):
            return
        if promised != core.record.promise:
            self._rivals.promised_other(out, session, promised, hello, now)
            return
        followers.replace(out, session, hello.replica, now)
        session.replica, session.address = hello.replica, hello.address
        session.hello, session.history = hello, from_items(hello.history)
        self._on_promised(out, session, hello, now)

    def _on_promised(self, out: list[Decision], session: Session, hello: Hello, now: float) -> None:
        """Hears a peer that has promised our epoch: its log may be taken, or it may follow."""
        core = self._core
        if core.phase is Phase.ASKING and session.history.last_number >= core.number:
            # Of a reign nobody joined: its promise was withdrawn, its bytes may be taken over. Numbers must still grow.
            self._asking.campaign(out, session.history.last_number, now)
            return
        if core.is_regular and not session.observer and holds_other_reign(core, session):
            text = f"replica {hello.replica} holds a reign of this group that this master does not know"
            self._rivals.give_way(out, hello, max(session.history.last_number, core.number), text, now)
            return
        session.enter(SessionState.WAITING)
        if core.is_regular:
            self._welcoming.welcome(out, session, now)
            return
        if holds_other_reign(core, session):
            self._asking.ask_also(hello)
        self._welcoming.put_off(out, session, now)
        self._asking.decide(out, now)
