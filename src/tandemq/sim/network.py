"""A simulated network: connections with TCP's semantics, and everything that happens to them.

A connection is two byte pipes.  Bytes of one pipe arrive in order or not at all; between pipes and connections
nothing is ordered.  What goes wrong here, because it does in life:

- delay, and delivery in pieces cut anywhere;
- a blocked direction: bytes wait (TCP retransmits) until it heals or the connection is reset;
- reset: both ends learn of it, or only one (the other waits for its housekeeping), bytes under way are lost;
- damage: a flipped bit that slipped through TCP's 16-bit checksum.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random


class EventQueue:
    """Things to do, in order of time; the simulation's clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def at(self, time: float, action: Callable[[], None]) -> None:
        # Taken at once: between two steps of this function a garbage collection may end a coroutine, which comes here.
        self._count = count = self._count + 1
        heapq.heappush(self._heap, (max(time, self.now), count, action))

    def after(self, delay: float, action: Callable[[], None]) -> None:
        self.at(self.now + delay, action)

    def step(self) -> bool:
        """Does the next thing; False if there is none."""
        if not self._heap:
            return False
        self.now, _, action = heapq.heappop(self._heap)
        action()
        return True


@dataclass(slots=True)
class Link:
    """One end of a connection, as its node sees it."""

    id: int
    here: str
    there: str
    connection: "Connection"
    on_data: Callable[[bytes], None]
    on_lost: Callable[[], None]
    open: bool = True
    arrival: float = 0.0
    """When the last bytes towards this end arrive: order within a pipe."""
    held: list[bytes] = field(default_factory=list)
    """Bytes towards this end that wait for a blocked direction to heal."""


@dataclass(slots=True)
class Connection:
    ends: list[Link] = field(default_factory=list)

    def other(self, link: Link) -> Link:
        return self.ends[1] if self.ends[0] is link else self.ends[0]


class SimulatedNetwork:
    """All connections of all nodes."""

    def __init__(self, events: EventQueue, random: Random) -> None:
        self.events = events
        self.random = random
        self.links: dict[int, Link] = {}
        self.blocked: set[tuple[str, str]] = set()
        """Directions (from, to) in which nothing passes."""
        self.damage = 0.0
        """Probability that a delivered piece has a flipped bit."""
        self.slowness = 1.0
        self._count = 0

    def connect(
        self,
        here: str,
        there: str,
        accept: Callable[[Link], tuple[Callable[[bytes], None], Callable[[], None]] | None],
        on_data: Callable[[bytes], None],
        on_lost: Callable[[], None],
    ) -> Link | None:
        """A connection from `here` to `there`, whose `accept` gives its end's callbacks; None if it can't be made."""
        if (here, there) in self.blocked or (there, here) in self.blocked:
            return None
        connection = Connection()
        near = self._link(here, there, connection, on_data, on_lost)
        far = self._link(there, here, connection, _nothing, _silent)
        connection.ends = [near, far]
        callbacks = accept(far)
        if callbacks is None:
            del self.links[near.id], self.links[far.id]
            return None
        far.on_data, far.on_lost = callbacks
        return near

    def _link(
        self,
        here: str,
        there: str,
        connection: Connection,
        on_data: Callable[[bytes], None],
        on_lost: Callable[[], None],
    ) -> Link:
        self._count += 1
        link = Link(self._count, here, there, connection, on_data, on_lost)
        self.links[link.id] = link
        return link

    def send(self, link: Link, data: bytes) -> None:
        """Bytes from this end to the other, cut into pieces as TCP may."""
        if not link.open:
            return
        far = link.connection.other(link)
        random = self.random
        while data:
            size = len(data) if random.random() < 0.8 else random.randint(1, len(data))
            self._deliver(link, far, data[:size])
            data = data[size:]

    def _deliver(self, link: Link, far: Link, piece: bytes) -> None:
        if (link.here, far.here) in self.blocked:
            far.held.append(piece)
            return
        if self.damage and self.random.random() < self.damage:
            at = self.random.randrange(len(piece))
            piece = piece[:at] + bytes([piece[at] ^ (1 << self.random.randrange(8))]) + piece[at + 1 :]
        delay = self.random.uniform(0.0001, 0.002) * self.slowness
        far.arrival = max(far.arrival, self.events.now + delay)

        def arrive() -> None:
            if not far.open:
                return
            if (link.here, far.here) in self.blocked or far.held:
                far.held.append(piece)
            else:
                far.on_data(piece)

        self.events.at(far.arrival, arrive)

    def close(self, link: Link) -> None:
        """This end closes: the other learns of it after the bytes under way, if anything reaches it."""
        if not link.open:
            return
        self._forget(link)
        far = link.connection.other(link)
        if (link.here, far.here) not in self.blocked:
            far.arrival = max(far.arrival, self.events.now + 0.0005)
            self.events.at(far.arrival, lambda: self.reset_end(far))

    def reset(self, link: Link, *, both: bool = True) -> None:
        """The connection breaks; with `both` False the other end has not noticed."""
        far = link.connection.other(link)
        self.reset_end(link)
        if both:
            self.reset_end(far)

    def reset_end(self, link: Link) -> None:
        if link.open:
            self._forget(link)
            link.on_lost()

    def vanish(self, node: str, *, silent: bool) -> None:
        """A node died: its ends are gone; the others notice at once (its kernel lives) or not at all."""
        for link in [link for link in self.links.values() if link.here == node]:
            self._forget(link)
            far = link.connection.other(link)
            if not silent and (link.here, far.here) not in self.blocked:
                self.events.after(0.0005, lambda far=far: self.reset_end(far))  # type: ignore[misc]

    def block(self, source: str, target: str) -> None:
        self.blocked.add((source, target))

    def heal(self) -> None:
        """Everything passes again; what waited arrives."""
        self.blocked.clear()
        for link in list(self.links.values()):
            held, link.held = link.held, []
            for piece in held:
                self._redeliver(link, piece)

    def _redeliver(self, link: Link, piece: bytes) -> None:
        link.arrival = max(link.arrival, self.events.now + 0.001)
        self.events.at(link.arrival, lambda: link.on_data(piece) if link.open else None)

    def _forget(self, link: Link) -> None:
        link.open = False
        self.links.pop(link.id, None)


def _nothing(data: bytes) -> None:
    pass


def _silent() -> None:
    pass
