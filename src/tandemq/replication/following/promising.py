"""From a master's challenge to our HELLO: whether to believe it, and what to promise.  Pure.

The promise is saved before the HELLO that speaks of it.
"""

from tandemq.codec import ha_session as ha
from tandemq.codec.ha_reasons import Reason
from tandemq.codec.ha_register import GROUP_HOME
from tandemq.codec.ha_seal import POLY1305, SEALED_VERSION, Handshake, Seal
from tandemq.codec.ha_session import Challenge, Hello, Preamble
from tandemq.replication.accession import is_named
from tandemq.replication.decisions import Decision, Note
from tandemq.replication.epochs import Promise, to_items
from tandemq.replication.following.core import SlaveCore, SlavePhase
from tandemq.replication.register import is_newer


class Promising:
    """The greeting of one session after another."""

    def __init__(self, core: SlaveCore) -> None:
        self._core = core
        self._nonce = ""

    def greet(self, out: list[Decision], nonce: str, now: float) -> None:
        """Speaks first on a connection; `nonce` makes both proofs of the key those of this session."""
        core = self._core
        self._nonce = nonce
        core.seal = None
        core.enter(SlavePhase.GREETED)
        core.last_heard = now
        core.send(out, Preamble(SEALED_VERSION if core.terms.shared_key else ha.VERSION, nonce), now)

    def challenged(self, out: list[Decision], challenge: Challenge, now: float) -> Seal | None:
        """Promises what may be promised and tells who this is and what it has.

        Returns what seals the master's frames from now on, when it has just proven a key.
        """
        is_proven, theirs = self._proof_of(challenge)
        if not is_proven:
            self._refuse_master(out, now)
            return None
        core = self._core
        refused = self._unnamed(out, challenge)
        if not refused:
            self._promise(out, challenge)
        hello = self._hello(challenge, refused)
        core.enter(SlavePhase.TOLD)
        core.send(out, hello, now)
        return theirs

    def _hello(self, challenge: Challenge, refused: str) -> Hello:
        core, record, terms = self._core, self._core.record, self._core.terms
        proof = "" if core.seal else ha.key_proof("", "slave", self._nonce, challenge.nonce, record.replica)
        return Hello(
            group=terms.group,
            replica=record.replica,
            proof=proof,
            address=terms.address,
            segment_size=core.log.segment_size,
            first=core.log.first,
            end=core.log.end,
            durable=core.durable,
            promised_number=record.promise.number,
            promised_id=record.promise.id,
            history=to_items(record.history),
            members=sorted(record.members),
            last_file_only=terms.last_file_only,
            alone_from=record.alone_from,
            registers=True,
            register=record.register,
            clean=record.complete,
            broker_id=terms.broker_id,
            observer=terms.observer,
            compression=terms.compression,
            refused=refused,
            vouches=core.vouch is not None,
            sums=POLY1305 if core.seal else "",
        )

    # --- the master's proof -----------------------------------------------------------------------------------------

    def _proof_of(self, challenge: Challenge) -> tuple[bool, Seal | None]:
        """Returns whether the master knows the key, or has none either, and what seals its frames from then on."""
        core, key, group = self._core, self._core.terms.shared_key, self._core.terms.group
        if not key:
            expected = ha.key_proof("", "master", self._nonce, challenge.nonce, group)
            return ha.same_proof(challenge.proof, expected), None
        if core.seal is not None:
            return True, None  # its seal fits, and it holds for this session
        claim = ha.claim_of(challenge.id, challenge.replica, challenge.register)
        handshake = Handshake(key, group, self._nonce, challenge.nonce, challenge.number, claim)
        if not ha.same_proof(challenge.proof, handshake.proof()):
            return False, None
        theirs, core.seal = handshake.seals()
        return True, theirs

    def _refuse_master(self, out: list[Decision], now: float) -> None:
        """Says whether key or group is wrong, which the proof both covers, as far as it can be known."""
        core = self._core
        if core.master_group not in ("", core.terms.group):
            text = f"slave of group {core.terms.group!r} at a master of group {core.master_group!r}"
            core.close(out, Reason.WRONG_GROUP, text, now)
            return
        if core.master_group:
            text = "the master did not prove the shared key: it has another, or only one of the two has one"
        else:
            text = "the master did not prove the shared key for this group: another key, or another brokerName"
        core.close(out, Reason.KEY_REFUSED, text, now)

    # --- the promise ------------------------------------------------------------------------------------------------

    def _unnamed(self, out: list[Decision], challenge: Challenge) -> str:
        """Returns why this replica's register forbids to promise anything to that master; empty if it does not."""
        core = self._core
        mine, theirs = core.record.register, challenge.register
        if mine is None:
            return ""
        if theirs is not None and theirs.group_id != mine.group_id:
            return f"{challenge.replica} belongs to another group of this name ({theirs.group_id}, not {mine.group_id})"
        if core.terms.observer:
            return ""  # it follows any broker of its group, members and other observers: nothing rests on it
        here, known = core.record.replica, mine
        if theirs is not None and is_newer(theirs, mine):
            if here not in mine.everybody:
                known = theirs  # it belongs to nobody yet: the newest register it hears of says whom to follow
            elif here not in theirs.everybody and theirs.epoch >= core.record.promise.number:
                # Somebody made the group forget this replica: it may join again, now that it knows.
                known = theirs
                core.save(out, register=theirs)
                out.append(Note("forgotten", "the group was made to forget this replica; it joins again", loud=True))
            elif theirs.home != GROUP_HOME:
                known = theirs  # a coordinator has it, so it counts whether or not this replica was told
        if is_named(known, challenge.replica, theirs):
            return ""
        return f"the register of the group does not name {challenge.replica or 'a master of the version before'}"

    def _promise(self, out: list[Decision], challenge: Challenge) -> None:
        """Promises not to serve an older master any more; if we already serve a newer one, our HELLO says so."""
        core = self._core
        promise, mine = Promise(challenge.number, challenge.id), core.record.promise
        if promise == mine:
            return
        if mine.allows(promise.number, promise.id):
            core.save(out, promise=promise)
            return
        text = (
            f"this replica belongs to epoch {mine.number}, newer than the master's {promise.number}: the master must "
            "step down, or ask again with a higher one"
        )
        out.append(Note("newer-than-master", text, loud=True))
