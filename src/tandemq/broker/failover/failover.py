"""Automatic failover of a group with a coordinator: who reigns is decided here, by replication/election.py's rules.

    register in etcd ──▶ nobody's          begin a group (create if absent)
                         this node's       hear those in sync, reign on
                         another's         follow it; stand when its lease is gone, or its process is known to be dead

The order of a candidate: take a lease, read, hear, take the furthest log, flush, swap on the revision read, open.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tandemq.broker.failover.coordinator import Coordinator
from tandemq.broker.failover.dead_process import is_refused
from tandemq.broker.failover.register_move import RegisterMove
from tandemq.broker.failover.reign_lease import ReignLease
from tandemq.broker.failover.succession import Succession
from tandemq.codec.ha_register import Member, Register
from tandemq.errors import CodecError, CoordinatorError, RemotingError, ReplicationError
from tandemq.replication.candidacy import RETRY_SECONDS, Candidacy, Standing
from tandemq.replication.decisions import Propose
from tandemq.replication.election import Candidate, ElectionVerdict, Step, View, decide, gives_way, hindrance_of
from tandemq.replication.epochs import place_of, rank
from tandemq.replication.fence import Fence
from tandemq.replication.known_keys import Holder
from tandemq.replication.mastership.core import Phase
from tandemq.replication.metadata import ask_ha_info
from tandemq.replication.register import is_newer
from tandemq.replication.register_fit import address_of, refusal_of

if TYPE_CHECKING:
    from tandemq.broker.pair.pair import Pair

log = logging.getLogger(__name__)

ASK_SECONDS = 0.3
"""For the other candidates to tell how far they have come."""
STAND_SECONDS = 3.0
"""A candidate that is not open by then follows again, so that others can hear it."""
PROBES = 20
PROBE_PAUSE = 0.03
OPEN_PAUSE = 0.005
TELL_PAUSE = 0.3
"""Between two announcements of one that stands."""
START_PAUSE = 0.01
UNREAD = "the coordinator has not answered yet"


class Failover:
    def __init__(self, pair: "Pair") -> None:
        self.pair = pair
        self._broker = broker = pair.broker
        config = broker.live.replication
        self._role = broker.role
        """What to be when elected."""
        self.priority = config.priority
        self._clock = broker.clock
        self.fence = Fence(broker.clock.monotonic)
        self.coordinator = Coordinator(
            config, broker.live.broker.cluster_name, broker.live.broker.broker_name, broker.clock
        )
        self.lease = ReignLease(
            self.coordinator,
            self.fence,
            broker.clock,
            reign=self._reign,
            vouched=self._vouched,
            on_lapsed=self._lapsed,
            on_resumed=self._resumed,
        )
        self.elections: Counter[str] = Counter()
        """Reigns that began here since the start, by reason."""
        self.refusal = UNREAD
        """Why this node takes no part; empty when it does."""
        self.verdict = ElectionVerdict(Step.REST, UNREAD)
        self._complained = ""
        """The last problem that was logged."""
        self._wake = asyncio.Event()
        self.candidacy = Candidacy(pair.node.record.replica, self.lease.seconds, self._clock.monotonic())
        self.was_handed = False
        """The holder has stopped by itself and handed over: its lease holds nobody up."""
        self.is_ordered = False
        """Somebody wants this node to reign: it stands first, and gives way only to another one that is wanted."""
        self._swaps: set[asyncio.Task[None]] = set()
        self._probing: asyncio.Task[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self.succession = Succession(self)
        self.move = RegisterMove(self)

    # --- life -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begins to read, to watch and to decide; the broker is a slave until then."""
        self._broker.writer.set_fence(self.fence)
        self.coordinator.on_change = self._changed
        self.coordinator.on_register = self.learned
        self.coordinator.start()
        self.lease.start()
        self._task = asyncio.get_running_loop().create_task(self._run(), name="failover")

    async def stop(self) -> None:
        tasks = [task for task in (self._task, self._probing, *self._swaps) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.lease.stop()
        await self.coordinator.stop()

    # --- what is known ----------------------------------------------------------------------------------------------

    @property
    def register(self) -> Register | None:
        """The newest register known: etcd's, or while it does not answer what this replica has stored of it."""
        stored = self.pair.node.register
        known = self.coordinator.register
        return known if known is not None and not is_newer(stored, known) else stored

    def address_of(self, replica: str) -> str:
        """Returns where a replica's broker is, as far as the register or its identity tells."""
        return address_of(self.register, replica) if self.register is not None else place_of(replica)

    @property
    def holder_address(self) -> str:
        """Where the broker is that reigns or last reigned; empty if that is this one or nobody."""
        register = self.register
        if register is None or register.holder == self.pair.node.record.replica:
            return ""
        return address_of(register, register.holder)

    def _reign(self) -> Holder | None:
        node = self.pair.node
        if not node.is_open:
            return None
        return Holder(node.record.replica, node.record.promise.number, self._broker.address)

    def _changed(self) -> None:
        self._wake.set()

    def learned(self, register: Register) -> None:
        """Takes a newer register that etcd has."""
        master = self.pair.node.master
        if register.holder != self.pair.node.record.replica:
            self.candidacy.hands_over = False
        if master is not None:
            master.learned(register)
        elif not self.refusal:
            self.pair.follow(self.holder_address)

    async def read(self) -> None:
        """Reads etcd, and whether that fits to what this replica has stored: nobody begins anew over something older.

        What is stored came from etcd, so what is read afterwards is never older, unless etcd lost something.
        """
        node, coordinator = self.pair.node, self.coordinator
        stored = node.register
        await coordinator.read()
        node.coordinate(coordinator.home, self.lease.seconds)
        refusal, self.refusal = self.refusal, refusal_of(coordinator.keys, coordinator.home, stored)
        if self.refusal and self.refusal != refusal:
            log.error("this broker takes no part in its group: %s", self.refusal)
        elif refusal and not self.refusal:
            self.pair.follow(self.holder_address)

    # --- deciding ---------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while not self._broker.is_started:  # noqa: ASYNC110  # only while the ports are opened
            await asyncio.sleep(START_PAUSE)
        while True:
            self._wake.clear()
            verdict = self.verdict
            try:
                if self.refusal or refusal_of(self.coordinator.keys, self.coordinator.home, self.pair.node.register):
                    await self.read()
                now = self._clock.monotonic()
                verdict = self.verdict = self._decided(now)
                await self._do(verdict)
                self._complained = ""
                if self.pair.node.is_open:
                    await self.succession.consider(now)
            except (CoordinatorError, ReplicationError, OSError) as error:
                self._complain(verdict.step, error)
                verdict = ElectionVerdict(Step.REST, str(error))
                self.candidacy.came_to_nothing(self._clock.monotonic())
            if verdict.step is Step.REST:
                pause = min(verdict.again_at - self._clock.monotonic(), self.lease.seconds / 2)
                try:
                    async with asyncio.timeout(max(0.001, pause)):
                        await self._wake.wait()
                except TimeoutError:
                    pass

    def _complain(self, step: Step, error: Exception) -> None:
        """Logs what an attempt came to; an etcd that can't be reached is tried ten times a second, and told once."""
        text = f"{step.value}: came to nothing: {error}"
        if text != self._complained:
            log.warning("%s", text)
        self._complained = text

    def _decided(self, now: float) -> ElectionVerdict:
        if self.is_ordered:  # it stands with what was ordered, and not a moment before by itself
            return ElectionVerdict(Step.REST, "it was ordered to reign", now + PROBE_PAUSE)
        return decide(self._view(now), now)

    def _view(self, now: float) -> View:
        node = self.pair.node
        standing = Standing(
            replica=node.record.replica,
            refusal=self.refusal,
            hindrance=self.hindrance(),
            is_master=self._broker.is_master,
            is_fresh=node.register is None and self._broker.store.appended == 0,
            me=self._me(),
        )
        return self.candidacy.view(standing, self.coordinator.keys, now)

    def hindrance(self) -> str:
        health, record = self._broker.store.health, self.pair.node.record
        return hindrance_of(
            priority=self.priority,
            complete=record.complete,
            unhealthy="" if health.writable else f"its log can't be written: {health.reason}",
            observer=self._broker.live.broker.observer,
        )

    def _me(self) -> Candidate:
        node = self.pair.node
        epoch, end, _ = rank(node.record.history, self._broker.store.appended, node.record.alone_from)
        return Candidate(
            replica=node.record.replica, epoch=epoch, end=end, priority=self.priority, is_ordered=self.is_ordered
        )

    async def _do(self, verdict: ElectionVerdict) -> None:
        if verdict.step is Step.ASK:
            self.candidacy.asked(await self.candidates(), self._clock.monotonic())
        elif verdict.step is Step.BEGIN:
            if await self._somebody_has_more():
                self.candidacy.came_to_nothing(self._clock.monotonic())
            else:
                await self.stand("first")
        elif verdict.step is Step.RESUME:
            await self.stand("restart")
        elif verdict.step is Step.STAND:
            await self.stand("dead" if self.candidacy.is_dead(self.coordinator.register) else "lease")

    async def _somebody_has_more(self) -> bool:
        """Returns whether one with messages is about to join: a store without any does not begin a group then."""
        if self._broker.store.appended > 0:
            return False
        view = await self.pair.look_around()
        return any(one.end > 0 for one in view.seen)

    async def candidates(self) -> tuple[Candidate, ...]:
        """Returns the other in-sync replicas that answer and may be elected."""
        register, here = self.coordinator.register, self.pair.node.record.replica
        if register is None:
            return ()
        others = [one for one in register.members if one.replica in register.in_sync and one.replica != here]
        found = await asyncio.gather(*(self._ask(one) for one in others if one.replica != register.holder))
        return tuple(one for one in found if one is not None)

    async def _ask(self, member: Member) -> Candidate | None:
        address = member.address or place_of(member.replica)
        try:
            info = await ask_ha_info(self._broker.asking_client, address, ASK_SECONDS)
        except (RemotingError, CodecError):
            return None
        found = _candidate_of(info)
        return found if found is not None and found.replica == member.replica else None

    def shown(self) -> dict[str, Any]:
        """Returns what operators see: coordinator, lease, who may be elected and why not the others."""
        register, coordinator = self.coordinator.register, self.coordinator
        return {
            "place": str(coordinator.client.place),
            "home": coordinator.home,
            "answers": not coordinator.is_away and coordinator.keys.was_read,
            "trouble": coordinator.client.trouble,
            "revision": coordinator.keys.revision,
            "lease_seconds": self.lease.seconds,
            "lease_left": round(self.fence.left, 3) if self.pair.node.is_open else 0.0,
            "vouched": self.lease.state.is_vouched,
            "lapsed": self.lease.state.has_lapsed,
            "one_copy_in": round(max(0.0, self.fence.alone_from - self._clock.monotonic()), 3)
            if self.fence.wants_copies and self.fence.alone_from < float("inf")
            else 0.0,
            "holder": coordinator.holder.replica if coordinator.holder is not None else "",
            "paused": register is not None and register.paused,
            "pinned": register is not None and register.pinned,
            "priority": self.priority,
            "hindrance": self.hindrance(),
            "refusal": self.refusal,
            "verdict": self.verdict.why,
            "elections": dict(self.elections),
            "without_master_ms": int(self.without_master_s * 1000),
        }

    @property
    def without_master_s(self) -> float:
        """For how long nobody has reigned, as far as etcd tells; 0 while somebody does."""
        since = self.candidacy.gone_since
        return self._clock.monotonic() - since if since is not None else 0.0

    def facts(self) -> dict[str, str]:
        """Returns what the others are told who decide who stands."""
        me = self._me()
        return {
            "tandemqRank": f"{me.epoch}.{me.end}",
            "tandemqEnd": str(self._broker.store.appended),
            "tandemqPriority": str(me.priority),
            "tandemqHindrance": self.hindrance(),
            "tandemqOrdered": "1" if me.is_ordered else "",
        }

    # --- standing ---------------------------------------------------------------------------------------------------

    async def stand(
        self, reason: str, *, ordered: bool = False, pinned: bool = False, accept_loss: bool = False
    ) -> bool:
        """Tries to open a reign; whether it did."""
        pair, coordinator = self.pair, self.coordinator
        async with pair.changing:
            if self._broker.is_master:
                return pair.node.is_open
            await self.lease.take()
            await self.read()
            if self.refusal:
                raise ReplicationError(self.refusal)
            register = coordinator.register
            if not ordered and decide(self._view(self._clock.monotonic()), self._clock.monotonic()).step is Step.REST:
                return False  # things have changed meanwhile
            if register is not None and not ordered:
                log.warning("stands for election after epoch %d of %s", register.epoch, register.holder)
            began_at = self._clock.monotonic()
            await pair.become_candidate(self._role, register, ordered=ordered and pinned)
            others = self._other_addresses(register)
            if accept_loss and pair.node.master is not None and not pair.node.is_open:
                pair.node.master.allow()
            opened = await self._until_open(began_at + STAND_SECONDS, others)
            if opened:
                self.elections[reason] += 1
                self.candidacy.elected()
                took = (self._clock.monotonic() - began_at) * 1000
                log.warning("elected (%s): epoch %d, %.0f ms", reason, pair.node.record.promise.number, took)
                return True
            waits = ", ".join(sorted(pair.node.status().waiting_for))
            if pair.node.master is not None and pair.node.master.state.phase is not Phase.DEPOSED:
                text = f"it could not hear {waits}" if waits else "it could not open in time"
                pair.node.master.order(0, f"the election came to nothing: {text}")
        self.candidacy.came_to_nothing(self._clock.monotonic())
        await pair.stepped_aside()
        if not pair.node.is_open:
            await self.lease.give_up()
        return False

    async def _until_open(self, deadline: float, others: set[str]) -> bool:
        """Waits, and tells the others again and again that it stands: one that stood too hears it when it follows."""
        node, tell_at = self.pair.node, float("-inf")
        while (now := self._clock.monotonic()) < deadline:
            if node.is_open:
                return True
            if node.master is None or node.master.state.phase is Phase.DEPOSED:
                return False
            if now >= tell_at:
                self.pair.announce_soon(others)
                tell_at = now + TELL_PAUSE
            await asyncio.sleep(OPEN_PAUSE)
        return node.is_open

    def announced(self, told: Mapping[str, str]) -> None:
        """Takes the word of another one that it is the master, or stands, while this one stands."""
        other, master = _candidate_of(told), self.pair.node.master
        if other is None or master is None or master.state.phase is not Phase.ASKING:
            return
        if gives_way(self._me(), other):
            master.order(0, f"{other.replica} stands too and goes first")

    def _other_addresses(self, register: Register | None) -> set[str]:
        members = (*register.members, *register.joining) if register is not None else ()
        return {one.address or place_of(one.replica) for one in members} - {self._broker.address}

    # --- swaps ------------------------------------------------------------------------------------------------------

    def propose(self, proposal: Propose) -> None:
        """Proposes a change of the register that a master wants."""
        task = asyncio.get_running_loop().create_task(self._swap(proposal), name="swap the register")
        self._swaps.add(task)
        task.add_done_callback(self._swaps.discard)

    async def _swap(self, proposal: Propose) -> None:
        """Swaps until the outcome is known, or nobody wants to know it any more."""
        node, coordinator = self.pair.node, self.coordinator
        expected, new = proposal
        claim = None
        if expected is None or expected.epoch != new.epoch:
            claim = Holder(new.holder, new.epoch, self._broker.address)
        while node.master is not None and node.master.state.proposed == new:
            if node.is_open and self.lease.state.is_vouched:
                # Etcd is away, yet the swap may happen: the words this reign rests on don't bind whom it lets stand.
                # Where the reign is over, nothing rests on them any more, and the next one needs its swap.
                await asyncio.sleep(RETRY_SECONDS / 5)
                continue
            old_lease = coordinator.keys.holder_lease
            holder_was_here = coordinator.holder is not None and coordinator.holder.replica == new.holder
            try:
                await self.lease.take()
                done = await coordinator.swap(expected, new, claim, self.lease.id)
            except CoordinatorError as error:
                log.info("the register is not swapped yet: %s", error)
                await asyncio.sleep(RETRY_SECONDS / 5)
                continue
            master = node.master
            if master is None:
                return
            if done:
                if claim is not None:
                    self._fence_old(old_lease, holder_was_here)
                master.swapped(new)
            elif coordinator.register is not None:
                master.learned(coordinator.register)
            return

    def _fence_old(self, old_lease: int, was_here: bool) -> None:
        """Asks, before the first acknowledgement of a new reign, whether another one's lease still lives."""
        if self.lease.state.opens_over(old_lease, was_here=was_here, was_handed=self.was_handed):
            self.pair.spawn(self._old_lease_ends(old_lease), "the old lease")

    async def _old_lease_ends(self, lease: int) -> None:
        await self.lease.old_one_ends(lease)
        await asyncio.sleep(max(0.0, self.fence.alone_from - self._clock.monotonic()))
        if self.pair.node.master is not None and self.pair.node.is_open and not self.fence.is_closed:
            self.pair.node.master.settle()
            self._broker.start_services()

    # --- a dead process ---------------------------------------------------------------------------------------------

    def session_lost(self) -> None:
        """Finds out, after the session with the master ended, whether its process is dead or only the link."""
        if self._probing is None or self._probing.done():
            self._probing = asyncio.get_running_loop().create_task(self._probe(), name="probe the holder")

    async def _probe(self) -> None:
        """Declares the process dead if its own host refuses both ports and there is no session.

        Its lease holds nobody up.
        """
        register, address = self.coordinator.register, self.holder_address
        host, _, port = address.rpartition(":")
        if register is None or not port.isdecimal():
            return
        for _ in range(PROBES):
            if self.pair.node.is_following or self._broker.is_master:
                return
            # One after the other: a living master is not to take a probe of its HA port for a slave.
            if await is_refused(host, int(port)) and await is_refused(host, self.pair.ha_port_of(address)):
                self.candidacy.died(register)
                self._wake.set()
                return
            await asyncio.sleep(PROBE_PAUSE)

    # --- the lease of a reign ---------------------------------------------------------------------------------------

    def _lapsed(self, why: str) -> None:
        why = f"this master is read-only: {self.refusal}" if self.refusal else why
        log.error("%s", why)
        self.pair.node.count("lease-lapsed")
        self._broker.registration.is_resting = True  # another may be in the routes by now
        self.pair.spawn(self._broker.forbid_writes(why), "the lease has lapsed")

    def _resumed(self) -> None:
        log.warning("the lease is back, nobody else was elected: this master goes on")
        self.pair.spawn(self._go_on(), "the lease is back")

    async def _go_on(self) -> None:
        if self.pair.node.is_open and not self.fence.is_closed:
            self._broker.allow_writes(services=not self.fence.wants_copies)  # `_old_lease_ends` starts them else
            self.pair.tell_name_servers()
            if self.pair.node.master is not None:
                self.pair.node.master.settle()

    def closed(self, deposed: bool) -> None:
        """Ends the reign of this node; `deposed` says that it does not try to win it back."""
        if not deposed:
            return
        if self.candidacy.hands_over:
            self.lease.let_go()
        else:
            self.pair.spawn(self.lease.give_up(), "give up the lease")

    def look(self) -> None:
        """Decides again, because something has changed."""
        self._wake.set()

    def hands_over(self) -> None:
        """Steps down for another one."""
        self.candidacy.begins_hand_over(self._clock.monotonic())

    # --- without etcd -----------------------------------------------------------------------------------------------

    def _vouched(self) -> float:
        """Asks the in-sync members for their word where that is due; until when all of them have given it."""
        master = self.pair.node.master
        return master.vouched_until() if master is not None else float("-inf")

    def vouch(self, master: str, epoch: int, now: float) -> str:
        """Gives its word to the master that this node follows, on the HA session.

        Returns why it is not given, if so.
        """
        return self.candidacy.vouch(master, epoch, self.register, self.coordinator.keys, now)


def _candidate_of(told: Mapping[str, str]) -> Candidate | None:
    """Returns what another one says of itself; None if it does not say, or why it may not be elected."""
    epoch, _, end = told.get("tandemqRank", "").partition(".")
    if told.get("tandemqHindrance") or not (epoch.isdecimal() and end.isdecimal()):
        return None
    priority = int(told.get("tandemqPriority", "0"))
    return Candidate(
        replica=told.get("tandemqReplica", ""),
        epoch=int(epoch),
        end=int(end),
        priority=priority,
        is_ordered=bool(told.get("tandemqOrdered")),
    )
