"""What a broker asks of its replication, and the answer of one that has none.

The pair's own side of this is plugged in at construction; a broker without it is a lonely master (its sends that ask
for more copies are told SLAVE_NOT_AVAILABLE at once) or a slave that follows nobody.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from tandemq.broker.handlers.peers import HaFacts
from tandemq.broker.registration import Registered
from tandemq.remoting.dispatch import Handler
from tandemq.replication.status import HaStatus


class Replication(Protocol):
    """The broker's view of the pair."""

    async def start(self) -> None:
        """After the store is open and before clients are served.

        A master that may not write yet sets `broker.writer.refusal` here and calls `broker.allow_writes()` when it may.
        """
        ...

    async def hand_over(self) -> None:
        """Before anything stops: another one may take over first; bounded."""
        ...

    async def tell_slaves(self) -> None:
        """Before the ports close: slaves may ask for the last changes of the tables; bounded."""
        ...

    async def stop(self) -> None:
        """After the last write and before the store closes."""
        ...

    def ha_facts(self) -> HaFacts: ...

    def ha_status(self) -> Mapping[str, Any]: ...

    def status(self) -> HaStatus | None:
        """The whole snapshot, for metrics; None without replication."""
        ...

    def registered(self, registered: Registered) -> None:
        """A name server answered a registration: it may have named the group's master."""
        ...

    def master_announced(self, ha_address: str, address: str) -> None:
        """Another broker says that it is our master."""
        ...

    def changed(self) -> None:
        """Topics or groups changed."""
        ...

    def retained(self) -> None:
        """Old segments of the log were deleted."""
        ...

    def dispatched(self) -> None:
        """Readers see more of the log."""
        ...

    def tables_true_at(self) -> int:
        """At which position of the log a slave has its master's tables; negative if it has none."""
        ...

    def handlers(self) -> dict[int, Handler]:
        """Requests between our own brokers."""
        ...


class Standalone:
    """No replication."""

    async def start(self) -> None:
        return None

    async def hand_over(self) -> None:
        return None

    async def tell_slaves(self) -> None:
        return None

    async def stop(self) -> None:
        return None

    def ha_facts(self) -> HaFacts:
        return HaFacts(ha_address="", extra={})

    def ha_status(self) -> Mapping[str, Any]:
        return {}

    def status(self) -> HaStatus | None:
        return None

    def registered(self, registered: Registered) -> None:
        return None

    def master_announced(self, ha_address: str, address: str) -> None:
        return None

    def changed(self) -> None:
        return None

    def retained(self) -> None:
        return None

    def dispatched(self) -> None:
        return None

    def tables_true_at(self) -> int:
        return -1

    def handlers(self) -> dict[int, Handler]:
        return {}
