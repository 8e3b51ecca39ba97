"""The lease of a reign: taken before a candidate stands, renewed while it reigns, given up when it does not.

The fence follows it: from the moment a renewal was *sent*, for the lease less a margin, by this node's own clock.  A
guard ends the reign's writes at that time whether or not etcd answers, and lets them go on when the lease is back and
the register still names this node.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from tandemq.broker.coordinator import Coordinator, Holder
from tandemq.clock import Clock
from tandemq.errors import CoordinatorError
from tandemq.replication.fence import MARGIN_SHARE, Fence

log = logging.getLogger(__name__)

GUARD_SECONDS = 0.05


class ReignLease:
    def __init__(
        self,
        coordinator: Coordinator,
        fence: Fence,
        clock: Clock,
        *,
        reign: Callable[[], Holder | None],
        vouched: Callable[[], Awaitable[float]],
        on_lapsed: Callable[[str], None],
        on_resumed: Callable[[], None],
    ) -> None:
        """`reign`: what this node claims while it is open; None while it is not.

        `vouched`: asks the in-sync members when etcd is away; returns until when all of them vouch.
        """
        self._coordinator = coordinator
        self.fence = fence
        self._clock = clock
        self._reign = reign
        self._vouched = vouched
        self._on_lapsed = on_lapsed
        self._on_resumed = on_resumed
        self.id = 0
        self.seconds = float(coordinator.lease_seconds)
        self.has_lapsed = False
        self.is_vouched = False
        """The reign goes on by the word of its in-sync members: etcd does not answer."""
        self._tasks: list[asyncio.Task[None]] = []

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
        """Before a candidate stands.  CoordinatorError if etcd does not answer."""
        if not self.id:
            sent_at = self._clock.monotonic()
            self.id = await self._coordinator.client.grant(self._coordinator.lease_seconds)
            self.fence.renewed(sent_at, self.seconds)

    async def give_up(self) -> None:
        """The reign is over, or was never: nobody has to wait for this lease."""
        lease, self.id = self.id, 0
        self.fence.close()
        self.has_lapsed = self.is_vouched = False
        if lease:
            try:
                await self._coordinator.client.revoke(lease)
            except CoordinatorError as error:
                log.info("the lease ends by itself, it could not be revoked: %s", error)

    def let_go(self) -> None:
        """A hand-over: not renewed any more, and not revoked, so that nobody else stands before the successor."""
        self.id = 0
        self.fence.close()
        self.has_lapsed = self.is_vouched = False

    async def old_one_ends(self, lease: int) -> None:
        """Revokes the lease of a holder that is known to be dead; until it has surely ended one copy is not enough."""
        self.fence.alone_from = self._clock.monotonic() + 10 * self.seconds
        while True:
            try:
                await self._coordinator.client.revoke(lease)
                break
            except CoordinatorError:
                await asyncio.sleep(self.seconds / 4)
        self.fence.alone_from = self._clock.monotonic() + self.seconds * (1 + MARGIN_SHARE)

    # --- time -------------------------------------------------------------------------------------------------------

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(self.seconds / 4)
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
        lacks_key = holder is not None and self._coordinator.holder_lease != lease
        # A lapsed lease took the key with it, or somebody else has opened a reign: the register knows.
        if holder is not None and lacks_key and not await self._coordinator.claim(holder, lease):
            return
        self.is_vouched = False
        self.fence.renewed(sent_at, self.seconds)

    async def _take_anew(self) -> None:
        self.id = 0
        holder = self._reign()
        sent_at = self._clock.monotonic()
        self.id = await self._coordinator.client.grant(self._coordinator.lease_seconds)
        if holder is None or await self._coordinator.claim(holder, self.id):
            self.is_vouched = False
            self.fence.renewed(sent_at, self.seconds)

    async def _be_vouched(self) -> None:
        """While etcd is away the in-sync members are asked, well before the lease runs out."""
        while True:
            await asyncio.sleep(GUARD_SECONDS)
            if self._reign() is None or not self._coordinator.is_away or self.fence.left > self.seconds / 2:
                continue
            until = await self._vouched()
            if self._reign() is not None and until > self.fence.until:
                if not self.is_vouched:
                    log.warning("etcd does not answer: the reign goes on, all in-sync members vouch for it")
                self.is_vouched = True
                self.fence.until = until

    async def _guard(self) -> None:
        while True:
            await asyncio.sleep(min(max(self.fence.left, 0.005), GUARD_SECONDS))
            reigns = self._reign() is not None
            if reigns and self.fence.is_closed and not self.has_lapsed:
                self.has_lapsed = True
                why = "etcd does not answer" if self._coordinator.is_away else "the lease was not renewed in time"
                self._on_lapsed(f"{why}, and not all in-sync members vouch for this master: it is read-only until then")
            elif reigns and self.has_lapsed and not self.fence.is_closed:
                self.has_lapsed = False
                self._on_resumed()
