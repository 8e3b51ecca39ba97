"""A replicated group under every fault we can think of, deterministic by seed.

One master and one to three slaves run the real store (on disks that forget what was not synced) and the real state
machines of replication, on a simulated clock and network.  Producers write at every ack level, an operator promotes and
demotes, and these happen, in any combination: kill -9, power cut (lost, torn and reordered sectors, also in the
middle of any disk operation), clean restart, pause, partition in both or one direction, connections that break at
both ends or only at one (so that the slave comes twice), slowness, damaged bytes on the wire and on disk, failing
fdatasync, full disk, a replaced disk, forged acks.

About one group in seven has more than its log (fuller.py): production's tables, delayed messages, timers and
transactions, and clients that need them; some of those clocks that are set, lost files, long partitions, retention.

Checked all the time (see ledger.py): a promise is true when it is made; what is acknowledged at a level, or shown to
readers, survives every fault that the level promises to survive; a slave shows nothing its master has not confirmed and
nothing else than its master has; nothing is cut without being saved aside.  At the end, with everything healed, there
is one master, everybody follows it, all logs are equal, nothing promised is missing and nothing is owed (clients.py):
what was delayed is delivered, what was committed too, and the group has skipped nothing.

    result = simulate(seed)          the same seed gives the same run, event for event
"""

from tandemq.sim.fate import World
from tandemq.sim.fuller import Beside, FullerWorld
from tandemq.sim.world import SimulationResult


def simulate(seed: int, *, trace: bool = False) -> SimulationResult:
    """One run; a broken invariant is told in `violation`, never raised."""
    return simulate_with(Beside.of(seed), seed, trace=trace)


def simulate_with(beside: Beside | None, seed: int, *, trace: bool = False) -> SimulationResult:
    """As `simulate`; who calls says what the group has beside its log, None for nothing."""
    return outcome_of(World(seed, trace=trace) if beside is None else FullerWorld(seed, beside, trace=trace))


def outcome_of(world: World) -> SimulationResult:
    """Runs a world to its end, or to the first invariant that breaks."""
    try:
        world.run()
    except AssertionError as error:
        world.result.violation = f"{error or type(error).__name__} at t={world.events.now:.4f}"
    finally:
        world.end()
    return world.result
