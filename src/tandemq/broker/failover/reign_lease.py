"""The lease of a reign: taken before a candidate stands, renewed while it reigns, given up when it does not.

This asks etcd, the members and the clock; what their answers mean is decided by replication/lease.py.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable

from tandemq.broker.failover.coordinator import Coordinator
from tandemq.clock import Clock
from tandemq.errors import CoordinatorError
from tandemq.replication.fence import Fence
from tandemq.replication.known_keys import Holder
from tandemq.replication.lease import GUARD_SECONDS, Lapsed, Lease, Resumed

log = logging.getLogger(__name__)


class ReignLease:
    def __init__(
        self,
        coordinator: Coordinator,
        fence: Fence,
        clock: Clock,
        *,
        reign: Callable[[], Holder | None],
        vouched: Callable[[], float],
        on_lapsed: Callable[[str], None],
        on_resumed: Callable[[], None],
    ) -> None:
        """`reign`: what this node claims while it is open; None while it is not.

        `vouched`: asks the in-sync members when etcd is away; returns until when all of them have vouched so far.
        """
        self._coordinator = coordinator
        self.fence = fence
        self._clock = clock
        self._reign = reign
        self._vouched = vouched
        self._on_lapsed = on_lapsed
        self._on_resumed = on_resumed
        self.state = Lease(fence, float(coordinator.lease_seconds))
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def id(self) -> int:
        return self.state.id

    @property
    def seconds(self) -> float:
        return self.state.seconds

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._keep(), name="lease"),
            loop.create_task(self._guard(), name="lease guard"),
            loop.create_task(self._be_vouched(), name="vouching"),
        ]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        await self.give_up()

    async def take(self) -> None:
        """Takes a lease before a candidate stands; raises CoordinatorError if etcd does not answer."""
        if not self.id:
            sent_at = self._clock.monotonic()
            self.state.granted(await self._coordinator.client.grant(self._coordinator.lease_seconds))
            self.state.renewed(sent_at)

    async def give_up(self) -> None:
        """Revokes the lease: the reign is over, or was never, and nobody has to wait for it."""
        if lease := self.state.ended():
            try:
                await self._coordinator.client.revoke(lease)
            except CoordinatorError as error:
                log.info("the lease ends by itself, it could not be revoked: %s", error)

    def let_go(self) -> None:
        """Stops renewing for a hand-over, without revoking, so that nobody else stands before the successor."""
        self.state.ended()

    async def old_one_ends(self, lease: int) -> None:
        """Revokes the lease of a holder that is known to be dead; until it has surely ended one copy is not enough."""
        self.state.revoking(self._clock.monotonic())
        while True:
            try:
                await self._coordinator.client.revoke(lease)
                break
            except CoordinatorError:
                await asyncio.sleep(self.seconds / 4)
        self.state.revoked(self._clock.monotonic())

    # --- time -------------------------------------------------------------------------------------------------------

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(self.state.renew_pause)
            if self.id:
                with contextlib.suppress(CoordinatorError):
                    await self._renew()

    async def _renew(self) -> None:
        lease, sent_at = self.id, self._clock.monotonic()
        lives = await self._coordinator.client.renew(lease)
        if self.id != lease:
            return
        if not lives:
            await self._take_anew()
            return
        holder = self._reign()
        lacks_key = holder is not None and self._coordinator.keys.holder_lease != lease
        # A lapsed lease took the key with it, or somebody else has opened a reign: the register knows.
        if holder is not None and lacks_key and not await self._coordinator.claim(holder, lease):
            return
        self.state.renewed(sent_at)

    async def _take_anew(self) -> None:
        self.state.granted(0)
        holder = self._reign()
        sent_at = self._clock.monotonic()
        self.state.granted(await self._coordinator.client.grant(self._coordinator.lease_seconds))
        if holder is None or await self._coordinator.claim(holder, self.id):
            self.state.renewed(sent_at)

    async def _be_vouched(self) -> None:
        while True:
            await asyncio.sleep(GUARD_SECONDS)
            if self._reign() is None or not self.state.wants_word(self._coordinator.is_away):
                continue
            if self.state.vouched(self._vouched()):
                log.warning("etcd does not answer: the reign goes on, all in-sync members vouch for it")

    async def _guard(self) -> None:
        while True:
            await asyncio.sleep(self.state.guard_pause)
            turn = self.state.guard(reigns=self._reign() is not None, is_away=self._coordinator.is_away)
            if isinstance(turn, Lapsed):
                self._on_lapsed(turn.why)
            elif isinstance(turn, Resumed):
                self._on_resumed()
