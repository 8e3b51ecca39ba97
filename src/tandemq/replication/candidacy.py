"""What a node of a group with a coordinator remembers between two decisions about standing for election.  Pure.

Facts and `now` in, decisions out: `view` gathers what election.py decides from, `vouch` gives or refuses the word that
a master asks for while etcd is away, `may_take_over` says whether an ordered promotion has to wait for the holder.
"""

from dataclasses import dataclass
from typing import Final
from zlib import crc32

from tandemq.codec.ha_register import Register
from tandemq.replication.election import Candidate, View
from tandemq.replication.known_keys import KnownKeys

RETRY_SECONDS: Final = 0.5
"""After an attempt that came to nothing, so that others can be heard."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """This node, as it is now."""

    replica: str
    refusal: str
    """Why it takes no part at all; see register_fit.py."""
    hindrance: str
    is_master: bool
    is_fresh: bool
    me: Candidate


class Candidacy:
    def __init__(self, replica: str, lease: float, now: float) -> None:
        self.lease = lease
        self._share = crc32(replica.encode()) / 2**32
        """Of a pause: no two replicas that stood at the same time try again at the same time."""
        self.gone_since: float | None = None
        """Since when nobody reigns, as far as etcd tells; None while somebody does."""
        self.others: tuple[Candidate, ...] | None = None
        """How far the other candidates have come; None: not asked since the holder is missed."""
        self.asked_at = self.not_before = float("-inf")
        self.vouches_until = now + lease
        """Not before then it stands: it has given its word, perhaps before it was started anew."""
        self.hands_over = False
        """This node has stopped by itself: its lease is left to end, so that nobody stands before its successor."""
        self._dead = ""
        """The epoch's id of a holder whose process is known to be dead."""

    # --- the holder -------------------------------------------------------------------------------------------------

    def died(self, register: Register) -> None:
        """Notes that the holder's session has closed and its host refuses connections to its ports."""
        self._dead = register.epoch_id

    def is_dead(self, register: Register | None) -> bool:
        return register is not None and bool(self._dead) and self._dead == register.epoch_id

    def _is_missed(self, keys: KnownKeys, now: float) -> bool:
        """Returns whether the holder reigns no more: its lease has ended, and so has the word that was given to it."""
        return keys.holder is None and now >= self.vouches_until and not keys.is_away

    def may_take_over(self, keys: KnownKeys, now: float) -> bool:
        """Returns whether an ordered promotion need not wait for the holder, which did not hand over."""
        return self.is_dead(keys.register) or self._is_missed(keys, now)

    # --- standing ---------------------------------------------------------------------------------------------------

    def view(self, node: Standing, keys: KnownKeys, now: float) -> View:
        """Returns what election.decide decides from."""
        register, dead = keys.register, self.is_dead(keys.register)
        missed = self._is_missed(keys, now)
        if register is None or not (missed or dead) or node.is_master:
            self.gone_since = self.others = None
        elif self.gone_since is None:
            self.gone_since = now
        return View(
            replica=node.replica,
            register=register,
            refusal=node.refusal,
            hindrance=node.hindrance,
            is_master=node.is_master,
            is_fresh=node.is_fresh,
            holder_lives=not missed,
            holder_is_dead=dead and not keys.is_away,
            gone_since=self.gone_since if self.gone_since is not None else now,
            others=self.others,
            me=node.me,
            asked_at=self.asked_at,
            not_before=self.not_before,
            lease=self.lease,
        )

    def asked(self, others: tuple[Candidate, ...], now: float) -> None:
        self.others, self.asked_at = others, now

    def came_to_nothing(self, now: float) -> None:
        """Notes that an attempt failed: the others are asked anew, in a while that differs from theirs."""
        self.others, self.not_before = None, now + RETRY_SECONDS * (1 + self._share)

    def elected(self) -> None:
        self._dead = ""

    def begins_hand_over(self, now: float) -> None:
        """Keeps this master, which steps down for another one, from standing again before that one had its time."""
        self.hands_over = True
        self.not_before = now + 2 * self.lease

    # --- without etcd -----------------------------------------------------------------------------------------------

    def vouch(self, replica: str, epoch: int, stored: Register | None, keys: KnownKeys, now: float) -> str:
        """Gives the master that is followed our word not to stand for a lease. Returns why it is not given, if so.

        A node that reaches etcd gives none: there the lease counts, and others may count on its end.
        """
        if not keys.is_away:
            return "etcd answers here"
        if stored is None or (stored.holder, stored.epoch) != (replica, epoch):
            return "this broker does not follow that master"
        self.vouches_until = max(self.vouches_until, now + self.lease)
        return ""
