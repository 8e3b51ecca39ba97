"""Bulk reads from a broker group: the preferred member first, then the others, going on where a broken read stopped.

Blocking, for threads and processes without an event loop. Connections are kept open per address.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from tandemq.client.blocking_cluster import BlockingCluster
from tandemq.client.bulk import TAG, QueueReader
from tandemq.clock import Clock, SystemClock
from tandemq.errors import ClientError, NoRoute, RemotingError, ReplyError
from tandemq.model.read_from import ReadFrom
from tandemq.model.route import BrokerGroup
from tandemq.model.topic import QueueRef

Answer = TypeVar("Answer")

CHOICE_SECONDS = 5.0
"""How long the order of a group's members is kept before it is worked out again."""

_FAILURES = (RemotingError, ReplyError, ClientError, OSError)


class _Choice(NamedTuple):
    """The members of a group in the order in which they are asked."""

    addresses: tuple[str, ...]
    until: float
    behind: int
    """Bytes that the first of them lacks of the master's log; -1 where that is not known."""


class Chosen(NamedTuple):
    """The member of a group that serves reads."""

    address: str
    behind: int
    """Bytes that it lacks of the master's log; -1 where that is not known."""


class GroupReader:
    """Asks and reads queues of broker groups, whichever member of the group answers."""

    def __init__(
        self,
        cluster: BlockingCluster,
        *,
        consumer_group: str,
        read_from: ReadFrom = ReadFrom.SLAVE,
        addresses: tuple[str, ...] = (),
        slave_lag_max_bytes: int = 256 << 20,
        depth: int = 4,
        count: int = 4096,
        clock: Clock | None = None,
    ) -> None:
        """`depth` pulls of `count` messages are under way at once; `slave_lag_max_bytes` says when a slave is close.

        `addresses`: brokers to read from instead of those that name servers know; each belongs to the group that it
        says it is of.
        """
        self._cluster = cluster
        self._access = cluster.access
        self._consumer_group = consumer_group
        self._read_from = read_from
        self._addresses = addresses
        self._names: dict[str, str] = {}
        self._slave_lag_max_bytes = slave_lag_max_bytes
        self._depth = depth
        self._count = count
        self._clock = clock or SystemClock()
        self._groups: dict[str, BrokerGroup] = {}
        self._choices: dict[str, _Choice] = {}
        self._readers: dict[str, QueueReader] = {}

    def close(self) -> None:
        for address in list(self._readers):
            self.drop(address)

    @property
    def open_addresses(self) -> tuple[str, ...]:
        """The members that a connection is open to."""
        return tuple(self._readers)

    def learn(self, groups: tuple[BrokerGroup, ...]) -> None:
        """Takes over broker groups from a route that was just read."""
        self._groups.update({group.name: group for group in groups})

    # reading

    def ask(self, broker_name: str, question: Callable[[QueueReader], Answer]) -> Answer:
        """Returns the answer of the first member that gives one; raises the last error when all tries are used up."""
        tries = 0
        while True:
            address = ""
            try:
                # Inside the `try`, because name servers forget a group while it restarts.
                address = self._member(broker_name, tries)
                return question(self._reader(address))
            except _FAILURES as error:
                tries += 1
                self._failed(broker_name, address, error, tries)

    def preferred(self, broker_name: str) -> QueueReader:
        """Returns a reader of the member that is asked first."""
        return self._reader(self.members(broker_name)[0])

    def ask_others(self, broker_name: str) -> Iterator[QueueReader]:
        """Yields readers of the members after the preferred one; those that can't be reached are left out."""
        for address in self.members(broker_name)[1:]:
            try:
                reader = self._reader(address)
            except _FAILURES:
                continue
            yield reader

    def master(self, broker_name: str) -> tuple[QueueReader | None, bool]:
        """Returns a reader of the group's master, and whether reads may go to it.

        None where reads go there first anyway, and where it can't be reached.
        """
        order = self.members(broker_name)
        address = self.group(broker_name).master
        if not address or address == order[0]:
            return None, True
        try:
            return self._reader(address), address in order
        except _FAILURES:
            return None, True

    def read(
        self,
        queue: QueueRef,
        start: int,
        stop: int,
        *,
        on_gap: Callable[[int, int], None],
        expression: str = "*",
        expression_type: str = TAG,
    ) -> Iterator[tuple[bytes | memoryview, int]]:
        """Yields the raw records of [start, stop) in chunks, each with the count of offsets that it covers.

        `on_gap(expected, found)` is told when the broker deleted offsets before they were read; it may raise.
        """
        position, tries = start, 0
        while position < stop:
            address = ""
            try:
                address = self._member(queue.broker_name, tries)
                reader = self._reader(address)
                for chunk in reader.read(
                    queue.topic,
                    queue.queue_id,
                    position,
                    stop,
                    on_gap=on_gap,
                    expression=expression,
                    expression_type=expression_type,
                ):
                    if len(chunk.records):
                        yield chunk.records, chunk.next_offset - position
                    position, tries = chunk.next_offset, 0
                return
            except GeneratorExit:
                # The caller stopped with pulls under way: their answers would be taken for those of the next read.
                self.drop(address)
                raise
            except _FAILURES as error:
                tries += 1
                self._access.report(
                    f"{queue.broker_name}/{queue.queue_id}/{queue.topic} at {position}: {error}; trying the next member"
                )
                self._failed(queue.broker_name, address, error, tries)

    # members

    def group(self, broker_name: str) -> BrokerGroup:
        """Returns the members of a group; asks the name servers when they are not known."""
        if broker_name not in self._groups:
            self._groups.update(self._cluster.groups())
        if broker_name not in self._groups:
            raise NoRoute(f"no name server knows broker {broker_name!r} any more")
        return self._groups[broker_name]

    def members(self, broker_name: str) -> tuple[str, ...]:
        """Returns the addresses of a group, the preferred ones first."""
        known = self._choices.get(broker_name)
        if known is not None and self._clock.monotonic() < known.until:
            return known.addresses
        group = self.group(broker_name)
        slaves = [address for broker_id, address in sorted(group.addresses.items()) if broker_id]
        masters = [group.master] if group.master else []
        ends: dict[str, int] = {}
        if self._addresses:
            order = self._of_group(broker_name)
            ends = self._ends([*masters, *order[:1]])
        elif self._read_from is ReadFrom.MASTER:
            order = masters
        elif self._read_from is ReadFrom.ANY:
            order = masters + slaves
        elif self._read_from is ReadFrom.OBSERVER:
            observers = self._observers(broker_name, masters + slaves)
            ends = self._ends(masters + observers)
            order = sorted(observers, key=lambda address: -ends[address])
        else:
            ends = self._ends(masters + slaves) if slaves else {}
            order = self._close_slaves_first(masters, slaves, ends)
        if not order:
            raise NoRoute(
                f"broker {broker_name!r} has no member to read from with readFrom={self._read_from.value}; it has "
                f"{dict(group.addresses)}"
            )
        until = self._clock.monotonic() + CHOICE_SECONDS
        self._choices[broker_name] = _Choice(tuple(order), until, _behind(order[0], masters, ends))
        return tuple(order)

    @property
    def chosen(self) -> dict[str, Chosen]:
        """Returns who serves the reads of each group that was asked, as it was when that was last worked out."""
        return {name: Chosen(choice.addresses[0], choice.behind) for name, choice in self._choices.items()}

    def _of_group(self, broker_name: str) -> list[str]:
        """Returns the given addresses whose brokers say that they are of this group."""
        for address in self._addresses:
            if address not in self._names:
                self._names[address] = self._cluster.broker_name(address)
        found = [address for address in self._addresses if self._names[address] == broker_name]
        if not found:
            known = ", ".join(f"{address} of {name!r}" for address, name in self._names.items())
            raise NoRoute(
                f"readFrom={','.join(self._addresses)}: none of them is of broker group {broker_name!r}, which has "
                f"queues to read; they are {known}. Name a member of each group"
            )
        return found

    def _observers(self, broker_name: str, members: list[str]) -> list[str]:
        """Returns the observers of a group's members, and the observers of those."""
        found: list[str] = []
        asked = [*members]
        for address in asked:
            new = [one for one in self._cluster.observers(address) if one and one not in asked]
            found += new
            asked += new
        if not found:
            raise NoRoute(
                f"readFrom=observer: no observer of broker group {broker_name!r} is known; {', '.join(members)} were "
                "asked. Beside RocketMQ, whose brokers don't tell, give its address: readFrom=HOST:PORT"
            )
        return found

    def _ends(self, addresses: list[str]) -> dict[str, int]:
        return {address: self._cluster.log_end(address) for address in addresses}

    def _close_slaves_first(self, masters: list[str], slaves: list[str], ends: dict[str, int]) -> list[str]:
        """Puts slaves that lag behind the master last: they still have most of it."""
        end = max((ends[address] for address in masters if address in ends), default=-1)
        close = [s for s in slaves if ends[s] >= 0 and end - ends[s] <= self._slave_lag_max_bytes]
        return close + masters + [s for s in slaves if s not in close]

    def _member(self, broker_name: str, tries: int) -> str:
        members = self.members(broker_name)
        return members[tries % len(members)]

    def _reader(self, address: str) -> QueueReader:
        if address not in self._readers:
            self._readers[address] = QueueReader(
                address,
                group=self._consumer_group,
                timeout=self._access.timeout_s,
                depth=self._depth,
                count=self._count,
                credentials=self._access.credentials,
                tls=self._access.tls,
            )
        return self._readers[address]

    def drop(self, address: str) -> None:
        """Closes the connection to a member; the next question opens a new one."""
        reader = self._readers.pop(address, None)
        if reader is not None:
            reader.close()

    def _failed(self, broker_name: str, address: str, error: Exception, tries: int) -> None:
        """Forgets what may be stale and pauses once all members were tried; raises when tries are used up."""
        self.drop(address)
        known = self._choices.get(broker_name)
        members = len(known.addresses) if known is not None else 1
        if tries > self._access.retries * members:
            raise error
        if tries % members == 0:
            self._access.back_off(tries // members - 1)
            self._choices.pop(broker_name, None)
            self._groups.pop(broker_name, None)


def _behind(first: str, masters: list[str], ends: dict[str, int]) -> int:
    if first in masters:
        return 0
    end, own = max((ends.get(master, -1) for master in masters), default=-1), ends.get(first, -1)
    return max(0, end - own) if end >= 0 and own >= 0 else -1
