"""The register's home in etcd: reads it, watches it, swaps it; and the key that says whose lease lives.

    /tandemq/<cluster>/<brokerName>/register    the register, changed only by a swap on the revision that was read
    /tandemq/<cluster>/<brokerName>/holder      who reigns, as long as its lease lives

What a watch may have missed a poll brings, every quarter of a lease: a watch whose connection hangs says nothing.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable

import msgspec

from tandemq.clock import Clock
from tandemq.codec.ha_register import Register
from tandemq.coordination.endpoints import parse_place
from tandemq.coordination.etcd import EtcdClient, Put
from tandemq.errors import ConfigError, CoordinatorError
from tandemq.replication.config import ReplicationConfig
from tandemq.replication.known_keys import Holder, KnownKeys

log = logging.getLogger(__name__)

RETRY_SECONDS = 0.1
WATCH_PAUSE = 0.2


def tls_context(config: ReplicationConfig) -> ssl.SSLContext:
    """Returns the context of connections to `etcds://`; raises ConfigError that names option and file."""
    try:
        context = ssl.create_default_context(cafile=config.coordinator_ca_path or None)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"haCoordinatorCaPath={config.coordinator_ca_path}: no usable PEM: {error}") from None
    if config.coordinator_cert_path:
        cert, key = config.coordinator_cert_path, config.coordinator_key_path
        try:
            context.load_cert_chain(cert, key)
        except (OSError, ssl.SSLError) as error:
            text = f"haCoordinatorCertPath={cert}, haCoordinatorKeyPath={key}: no usable PEM: {error}"
            raise ConfigError(text) from None
    return context


class Coordinator:
    """One group's keys in etcd, as this node knows them."""

    def __init__(self, config: ReplicationConfig, cluster: str, broker_name: str, clock: Clock) -> None:
        place = parse_place(config.coordinator)
        self.lease_seconds = config.lease_seconds
        self._clock = clock
        self.client = EtcdClient(
            place,
            tls=tls_context(config) if place.tls else None,
            user=config.coordinator_user,
            password=config.coordinator_password,
            timeout=max(0.25, config.lease_seconds / 4),
        )
        self.prefix = f"/tandemq/{cluster}/{broker_name}/"
        self.register_key, self.holder_key = f"{self.prefix}register", f"{self.prefix}holder"
        self.keys = KnownKeys()
        self.on_register: Callable[[Register], None] = lambda register: None
        self.on_change: Callable[[], None] = lambda: None
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def home(self) -> str:
        """How the register names this coordinator: another etcd, or one made anew, has another name."""
        return f"etcd:{self.client.cluster}"

    @property
    def register(self) -> Register | None:
        return self.keys.register

    @property
    def holder(self) -> Holder | None:
        return self.keys.holder

    @property
    def is_away(self) -> bool:
        """Whether etcd did not answer the last time it was read."""
        return self.keys.is_away

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._poll(), name="coordinator poll"),
            loop.create_task(self._watch(), name="coordinator watch"),
        ]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        self.client.close()

    # --- reading ----------------------------------------------------------------------------------------------------

    async def read(self) -> int:
        """Reads both keys anew; returns the revision of the whole store.  CoordinatorError if etcd does not answer."""
        asked_at, keys = self._clock.monotonic(), self.keys
        known = keys.revision
        try:
            found = await self.client.read(self.prefix)
        except CoordinatorError:
            keys.unanswered()
            raise
        if not keys.answered(asked_at, found.revision, known):
            return found.revision
        value = found.values.get(self.register_key)
        self._note_register(*((value.data, value.revision) if value is not None else (None, found.revision)))
        holder = found.values.get(self.holder_key)
        if holder is not None:
            keys.told_holder(holder.data, holder.lease, holder.revision)
        else:
            keys.told_no_holder(found.revision)
        self.on_change()
        return found.revision

    def _note_register(self, data: bytes | None, revision: int) -> None:
        news = self.keys.told_register(data, revision)
        if news is not None:
            self.on_register(news)

    async def _poll(self) -> None:
        trouble = ""
        while True:
            try:
                await self.read()
                if trouble:
                    log.info("the coordinator answers again")
                trouble = ""
            except CoordinatorError as error:
                if not trouble:
                    log.warning("the coordinator does not answer: %s", error)
                trouble = str(error)
                self.on_change()
            await asyncio.sleep(self.lease_seconds / 4 if not trouble else RETRY_SECONDS)

    async def _watch(self) -> None:
        while True:
            try:
                revision = await self.read()
                async for changes in self.client.watch(self.prefix, revision + 1):
                    for change in changes:
                        if change.key == self.register_key:
                            self._note_register(change.data, change.revision)
                        elif change.key == self.holder_key:
                            self.keys.told_holder(change.data, change.lease, change.revision)
                    if changes:
                        self.on_change()
            except CoordinatorError as error:
                log.debug("the watch ended: %s", error)
            await asyncio.sleep(WATCH_PAUSE)

    # --- writing ----------------------------------------------------------------------------------------------------

    async def swap(self, expected: Register | None, new: Register, claim: Holder | None = None, lease: int = 0) -> bool:
        """Replaces the register; True: etcd has `new`.  False: it has another one, which was read.

        `claim`: of a new reign, written in the same step under its lease.
        CoordinatorError: the outcome is not known; the same swap must be tried again before anything else.
        """
        if self.keys.damage:
            raise CoordinatorError(self.keys.damage)  # what is there is not what this group has built on
        known = self.register
        if (known.version if known is not None else None) != (expected.version if expected is not None else None):
            return known == new
        data = msgspec.json.encode(new)
        puts = [Put(self.register_key, data)]
        if claim is not None:
            puts.append(self._claim_of(claim, lease))
        done, found, revision = await self.client.swap(self.register_key, self.keys.revision, puts)
        if not done and (found is None or found.data != data):
            self._note_register(*((found.data, found.revision) if found is not None else (None, revision)))
            return False
        if not done and found is not None:
            revision = found.revision  # an earlier try of this swap was carried out
        self.keys.took(new, revision)
        if claim is not None:
            self.keys.told_holder(msgspec.json.encode(claim), lease, revision)
        return True

    async def force(self, new: Register) -> bool:
        """Writes a register over whatever was read, when an operator moves it here; False: it is another by now."""
        data = msgspec.json.encode(new)
        done, _, revision = await self.client.swap(
            self.register_key, self.keys.revision, [Put(self.register_key, data)]
        )
        if done:
            self.keys.took(new, revision)
        return done

    async def claim(self, holder: Holder, lease: int) -> bool:
        """Says who reigns, under its lease, if the register says so and is still the one known; False: it is not."""
        register = self.register
        if self.keys.damage or register is None or (register.holder, register.epoch) != (holder.replica, holder.epoch):
            return False
        done, found, revision = await self.client.swap(
            self.register_key, self.keys.revision, [self._claim_of(holder, lease)]
        )
        if done:
            self.keys.told_holder(msgspec.json.encode(holder), lease, revision)
        elif found is None or found.revision != self.keys.revision:
            self._note_register(*((found.data, found.revision) if found is not None else (None, revision)))
        return done

    def _claim_of(self, holder: Holder, lease: int) -> Put:
        return Put(self.holder_key, msgspec.json.encode(holder), lease)
