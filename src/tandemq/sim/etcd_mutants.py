"""The rules of a group with a coordinator, broken one at a time: proof that `tandemq sim --etcd` would notice."""

from typing import Any

from tandemq.broker.failover import coordinator, failover
from tandemq.codec.ha_register import Register
from tandemq.coordination import etcd
from tandemq.errors import CoordinatorError
from tandemq.replication import accession, candidacy, election, fence, lease, vouching
from tandemq.replication.accession import Judgement
from tandemq.replication.decisions import Decision, Propose
from tandemq.replication.election import Candidate
from tandemq.replication.mastership import asking, core, opening, taking
from tandemq.sim.mutants import Mutant

_JUDGE = accession.judge_elected
_PROPOSE_EPOCH = opening.Opening._propose_epoch
_SWAP = etcd.EtcdClient.swap
_COORDINATOR_SWAP = coordinator.Coordinator.swap
_VOUCH = candidacy.Candidacy.vouch


def _never_closed(self: Any) -> bool:
    return False


def _from_the_answer(self: Any, sent_at: float) -> None:
    self.is_vouched = False
    self.fence.renewed(self.fence._now() + self.seconds / 2, self.seconds)


def _longer_than_the_lease(self: Any, sent_at: float, lease: float) -> None:
    self.until = max(self.until, sent_at + 1.5 * lease)


def _hears_nobody(me: Any, register: Register, heard: Any) -> Judgement:
    found = _JUDGE(me, register, heard)
    return Judgement(found.case, found.register, frozenset(), frozenset(), found.replaces, found.yields)


def _anybody_in_sync(register: Register, replica: str, hindrance: str = "") -> str:
    return "" if replica in register.member_ids else "is no member of the group"


async def _compares_nothing(self: Any, key: str, revision: int, puts: Any, *, deletes: Any = ()) -> Any:
    puts = list(puts)
    for _ in range(3):
        done, found, at = await _SWAP(self, key, revision, puts, deletes=deletes)
        if done or found is None:
            break
        revision = found.revision
    return done, found, at


def _opens_at_once(self: Any, out: list[Decision], register: Register) -> None:
    _PROPOSE_EPOCH(self, out, register)
    self.take_register(out, register)
    self.open_reign(out, 0.0)


def _opens_when_stored(self: Any, out: list[Decision], now: float) -> None:
    if self._core.phase is core.Phase.SWAPPING:
        stored = self._core.keeper.has_stored
        if all(stored(one) for one in self._asking.writes_to):
            self.open_reign(out, now)


def _counts_before_etcd(self: Any, out: list[Decision], new: Register, **more: object) -> bool:
    if self.is_coordinated and self.proposal is None:
        out.append(Propose(self.register, new))
    self.keeper.swap(self.register, new)
    self.save(out, **self.of_register(new), **more)
    return True


def _word_not_kept(self: Any, replica: str, epoch: int, stored: Any, keys: Any, now: float) -> str:
    before = self.vouches_until
    refused = _VOUCH(self, replica, epoch, stored, keys, now)
    self.vouches_until = before
    return refused


def _one_word_is_enough(self: Any, needed: Any, now: float) -> float:
    newest = max((self._given.get(one, float("-inf")) for one in needed), default=now)
    return float(newest + self.lease * (1 - fence.MARGIN_SHARE))


def _always_missed(self: Any, keys: Any, now: float) -> bool:
    return not keys.is_away


async def _unknown_is_no(self: Any, expected: Any, new: Any, claim: Any = None, lease: int = 0) -> bool:
    try:
        return await _COORDINATOR_SWAP(self, expected, new, claim, lease)
    except CoordinatorError:
        return False


def _nobody_gives_way(me: Candidate, other: Candidate) -> bool:
    return False


def _nobody_further(self: Any, register: Any) -> None:
    return None


ETCD_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "etcd-fence-never-closes",
        0,
        "etcd: lease",
        "a master acknowledges after its lease",
        ((fence.Fence, "is_closed", property(_never_closed)),),
    ),
    Mutant(
        "etcd-fence-from-the-answer",
        0,
        "etcd: lease",
        "a lease counts from the answer, not from the question",
        ((lease.Lease, "renewed", _from_the_answer),),
    ),
    Mutant(
        "etcd-fence-too-long",
        0,
        "etcd: lease",
        "the fence lasts longer than the lease",
        ((fence.Fence, "renewed", _longer_than_the_lease),),
    ),
    Mutant(
        "etcd-hears-nobody",
        0,
        "etcd: hear",
        "whoever is elected opens without hearing those in sync",
        ((asking, "judge_elected", _hears_nobody),),
    ),
    Mutant(
        "etcd-anybody-stands",
        0,
        "etcd: in sync",
        "one that is not in sync, or whose machine crashed, is elected without hearing all",
        ((election, "why_not", _anybody_in_sync), (asking, "judge_elected", _hears_nobody)),
    ),
    Mutant(
        "etcd-takes-nothing",
        0,
        "etcd: take",
        "whoever is elected hears the others and does not take the furthest tail",
        ((taking.Taking, "_furthest", _nobody_further),),
    ),
    Mutant(
        "etcd-swap-compares-nothing",
        0,
        "etcd: swap",
        "the register is written whatever there is",
        ((etcd.EtcdClient, "swap", _compares_nothing),),
    ),
    Mutant(
        "etcd-opens-before-the-swap",
        0,
        "etcd: swap",
        "a reign opens while its swap is under way",
        ((opening.Opening, "_propose_epoch", _opens_at_once),),
    ),
    Mutant(
        "etcd-opens-when-stored",
        13,
        "etcd: swap",
        "a reign opens when the others have stored a register, whatever etcd says",
        ((opening.Opening, "open_if_stored", _opens_when_stored),),
    ),
    Mutant(
        "etcd-counts-before-the-swap",
        0,
        "etcd: shrink",
        "a change of the register counts before etcd has it",
        ((core.MasterCore, "swap", _counts_before_etcd),),
    ),
    Mutant(
        "etcd-unknown-is-no",
        0,
        "etcd: unknown",
        "a swap whose outcome is not known counts as refused",
        ((coordinator.Coordinator, "swap", _unknown_is_no),),
    ),
    Mutant(
        "etcd-word-not-kept",
        0,
        "etcd: vouch",
        "a member that vouched stands all the same",
        ((candidacy.Candidacy, "vouch", _word_not_kept),),
    ),
    Mutant(
        "etcd-one-word-is-enough",
        0,
        "etcd: vouch",
        "the word of one in-sync member keeps a reign going",
        ((vouching.Words, "until", _one_word_is_enough),),
    ),
    Mutant(
        "etcd-stands-while-the-holder-lives",
        0,
        "etcd: lease",
        "a candidate does not wait for the end of the holder's lease",
        ((candidacy.Candidacy, "_is_missed", _always_missed),),
    ),
    Mutant(
        "etcd-nobody-gives-way",
        53,
        "etcd: election",
        "two that stand wait for each other",
        ((failover, "gives_way", _nobody_gives_way),),
    ),
)
