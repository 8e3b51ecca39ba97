"""Connections of the simulated network, and what happens to them."""

from random import Random

from tandemq.sim.network import EventQueue, Link, SimulatedNetwork


class End:
    """What one end has received, and whether it lost its connection."""

    def __init__(self) -> None:
        self.data = b""
        self.lost = False

    def on_data(self, data: bytes) -> None:
        self.data += data

    def on_lost(self) -> None:
        self.lost = True


class Wire:
    def __init__(self) -> None:
        self.events = EventQueue()
        self.network = SimulatedNetwork(self.events, Random(1))
        self.near, self.far = End(), End()
        link = self.connect()
        assert link is not None
        self.link: Link = link

    def connect(self) -> Link | None:
        def accept(link: Link) -> object:
            return self.far.on_data, self.far.on_lost

        return self.network.connect("a", "b", accept, self.near.on_data, self.near.on_lost)  # type: ignore[arg-type]

    def run(self) -> None:
        while self.events.step():
            pass


def test_bytes_of_a_pipe_arrive_in_order() -> None:
    wire = Wire()
    for _ in range(50):
        wire.network.send(wire.link, b"0123456789")
    wire.run()
    assert wire.far.data == b"0123456789" * 50


def test_a_blocked_direction_holds_bytes_until_it_heals() -> None:
    wire = Wire()
    wire.network.block("a", "b")
    wire.network.send(wire.link, b"late")
    wire.run()
    assert wire.far.data == b""
    wire.network.heal()
    wire.run()
    assert wire.far.data == b"late"


def test_one_end_may_learn_of_a_reset_and_the_other_not() -> None:
    wire = Wire()
    wire.network.reset(wire.link, both=False)
    wire.run()
    assert (wire.near.lost, wire.far.lost) == (True, False)


def test_a_machine_without_power_says_nothing_and_a_killed_process_does() -> None:
    for silent in (True, False):
        wire = Wire()
        wire.network.vanish("a", silent=silent)
        wire.run()
        assert wire.far.lost is not silent


def test_nobody_connects_across_a_cut() -> None:
    wire = Wire()
    wire.network.block("b", "a")
    assert wire.connect() is None
