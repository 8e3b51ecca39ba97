"""Stories of a group as text: what is done, and what must follow.  The simulator without chance.

    # Why this story is told.

    nodes 3 level 2
    ----
    n0 opens epoch 1
    ...

    kill n0
    ----

A block is a command, `----`, and what the nodes and the operator then said, until everything is quiet.  Commands:

    nodes COUNT level LEVEL [async]   a new group; n0 is configured as master
    send NODE COUNT [LEVEL]           so many messages; says how many were acknowledged
    kill | power | stop | start NODE  kill -9, power cut, a stop in order, a start
    power NODE after COUNT            the power goes after so many more operations of its disk
    wipe NODE                         a new, empty disk in a dead node
    cut NODE | heal                   nothing passes to and from it; everything passes again
    promote NODE [accept-loss]        `tandemq broker promote`; with the flag also of a master that waits
    demote NODE                       `tandemq broker demote`
    forget NODE REPLICA [accept-loss] `tandemq ha forget`; a replica is given by its node, or as lost:NODE
    classic NODE NAME                 a RocketMQ slave of that name connects, and keeps and reports what it is sent
    wait SECONDS                      time passes
    register NODE                     what its disk says of the group
    holds NODE                        how many of all acknowledged messages are in its log
"""

from collections.abc import Callable
from random import Random

from tandemq.codec.ha_classic import Chunk, Head, TransferReader, encode_report
from tandemq.model.ack_level import AckLevel
from tandemq.replication.acks import PutStatus
from tandemq.replication.following.core import SlaveTerms
from tandemq.replication.mastership.core import MasterTerms
from tandemq.replication.promotion import refusal_of
from tandemq.sim.fate import World
from tandemq.sim.network import EventQueue, SimulatedNetwork
from tandemq.sim.node import SimNode
from tandemq.store.config import StoreConfig
from tandemq.store.message_store import Appended

QUIET = 0.25
"""Simulated seconds after each command: long enough for a session, shorter than any patience."""
TOLD = (
    "opens", "steps down", "cuts", "in-sync", "opened-", "read-only", "left", "abandons-", "forgotten", "newer-than",
    "broker-id",
)  # fmt: skip


class Story(World):
    """A group that does only what it is told."""

    def __init__(self) -> None:
        self.random = Random(1)
        self.events = EventQueue()
        self.network = SimulatedNetwork(self.events, self.random)
        self.nodes: list[SimNode] = []
        self.said: list[str] = []
        self.acknowledged: list[tuple[int, bytes]] = []
        self._lost: dict[str, str] = {}

    # --- what nodes tell --------------------------------------------------------------------------------------------

    def traced(self, node: SimNode, text: str) -> None:
        if text.startswith(TOLD):
            self.said.append(f"{node.name} {self._named(text)}")

    def _named(self, text: str) -> str:
        """The text with nodes for identities, which are random, and without offsets, which nobody wants to count."""
        for node in self.nodes:
            if node.record.replica:
                text = text.replace(node.record.replica, node.name)
        for replica, name in self._lost.items():
            text = text.replace(replica, name)
        return text.partition(" at ")[0] if text.startswith("opens") else text.partition(" (10.")[0]

    def opened(self, node: SimNode) -> None:
        master = node.master
        if master is not None and not master.provisional:
            node.ordered = False
            for other in self.nodes:
                if other is not node:
                    self.events.after(0.01, lambda other=other: self._announce(node, other))  # type: ignore[misc]

    def stepped_down(self, node: SimNode, asking: bool) -> None:
        if not asking:
            self.events.after(0.0, lambda: self._make_slave(node))

    def confirmed(self, node: SimNode, before: int, offset: int) -> None:
        pass

    def died(self, node: SimNode, *, power: bool) -> None:
        pass

    def _tell(self, text: str) -> None:
        pass

    # --- commands ---------------------------------------------------------------------------------------------------

    def do(self, line: str) -> list[str]:
        """One command; what was said until everything was quiet."""
        self.said = []
        name, *words = line.split()
        getattr(self, f"_do_{name}")(*words)
        self._run(QUIET)
        if self.nodes:
            self._look_once()
            self._run(QUIET)
        return self.said

    def _run(self, seconds: float) -> None:
        until = self.events.now + seconds
        self.events.after(seconds, lambda: None)
        while self.events.now < until and self.events.step():
            pass

    def _look_once(self) -> None:
        for node in self.nodes:
            if node.alive and node.master is not None:
                self._look(node)

    def _node(self, name: str) -> SimNode:
        return next(node for node in self.nodes if node.name == name)

    def _do_nodes(self, count: str, _: str, level: str, role: str = "") -> None:
        copies, _, durable = level.partition(":")
        wanted = AckLevel(copies if copies in ("majority", "all") else int(copies), bool(durable))  # type: ignore[arg-type]
        terms = MasterTerms(
            group="g", level=wanted, strict_open=role != "async", heartbeat=0.05, housekeeping=0.2, away_max=0.3,
            rejoin_wait=0.4, loss_wait=0.1, gap_max=1 << 20,
        )  # fmt: skip
        slave_terms = SlaveTerms(group="g", heartbeat=0.05, housekeeping=0.2)
        store = StoreConfig(
            commit_log_segment_size=16384, consume_queue_segment_size=2000, index_enable=False, message_size_max=2048
        )
        self.level = wanted
        self.nodes = [
            SimNode(f"n{i}", self.events, self.network, self.random, self, store, terms, slave_terms)
            for i in range(int(count))
        ]
        self.chosen = self.nodes[0]
        for node in self.nodes:
            self._do_start(node.name)

    def _do_start(self, name: str) -> None:
        node = self._node(name)
        node.role = "master" if node is self.nodes[0] else "slave"
        node.boot()

    def _do_kill(self, name: str) -> None:
        self._node(name).die(power=False)

    def _do_power(self, name: str, after: str = "", count: str = "") -> None:
        node = self._node(name)
        if after:
            node.disk.crash_at = len(node.disk.steps) + int(count)
        else:
            node.die(power=True)

    def _do_stop(self, name: str) -> None:
        self._node(name).stop()

    def _do_wipe(self, name: str) -> None:
        node = self._node(name)
        self._lost[node.record.replica] = f"lost:{name}"
        node.wipe()

    def _do_cut(self, name: str) -> None:
        for other in self.nodes:
            if other.name != name:
                self.network.block(name, other.name)
                self.network.block(other.name, name)

    def _do_heal(self) -> None:
        self.network.heal()

    def _do_classic(self, name: str, peer: str) -> None:
        node = self._node(name)
        reader, have = TransferReader(), 0

        def receive(data: bytes) -> None:
            nonlocal have
            for event in reader.feed(data):
                if isinstance(event, Head) and event.size:
                    have = event.offset
                elif isinstance(event, Chunk):
                    have += len(event.data)
            assert link is not None
            self.network.send(link, encode_report(have))

        link = self.network.connect(peer, name, node.accept, lambda data: receive(data), lambda: None)
        assert link is not None
        self.network.send(link, encode_report(0))

    def _do_wait(self, seconds: str) -> None:
        self._run(float(seconds))

    def _do_send(self, name: str, count: str, level: str = "") -> None:
        node, done = self._node(name), [0]
        copies, _, durable = level.partition(":")
        wanted = self.level
        if level:
            wanted = AckLevel(copies if copies in ("majority", "all") else int(copies), bool(durable))  # type: ignore[arg-type]

        def outcome(status: PutStatus, reason: str, appended: Appended) -> None:
            if status is PutStatus.PUT_OK:
                done[0] += 1
                start = appended.physical_offset
                self.acknowledged.append((start, node.log_bytes(start, start + appended.size)))

        for number in range(int(count)):
            node.produce(0, b"%d " % number + self.random.randbytes(50), wanted, outcome)
        self._run(QUIET)
        self.said.append(f"{done[0]} of {count} acknowledged")

    def _do_promote(self, name: str, flag: str = "") -> None:
        node = self._node(name)
        if flag and node.master is not None and not node.is_open:
            node.act(node.master.allow(node.now, group_gone=self._is_group_gone(node)))
            self._run(0.5)
            return
        if not node.alive or node.slave is None:
            self.said.append(f"{name} is no slave")
            return
        refusal = refusal_of(node.record, self._answers(node))
        if refusal and not flag:
            self.said.append(f"refused: {self._named(refusal).partition(':')[0]}")
            return
        old = node.follows
        if node.is_following and old is not None and old.is_open and self._reaches(node, old):
            self._demote(old, lambda: self._order(node, bool(flag)))
        else:
            self._order(node, bool(flag))
        self._run(1.2)
        if not node.is_open:
            self.said.append(f"the promotion of {name} has come to nothing")

    def _do_demote(self, name: str) -> None:
        then: Callable[[], None] = lambda: self.said.append(f"{name} has handed over")  # noqa: E731
        self._demote(self._node(name), then)

    def _do_forget(self, name: str, replica: str, flag: str = "") -> None:
        node = self._node(name)
        names = {f"n{i}": one.record.replica for i, one in enumerate(self.nodes)}
        names |= {text: identity for identity, text in self._lost.items()}
        if node.master is None:
            self.said.append("refused: no master")
            return
        refusal, decisions = node.master.forget(names[replica], node.now, accept_loss=bool(flag))
        node.act(decisions)
        self.said.append(f"refused: {refusal}" if refusal else f"{replica} is forgotten")

    def _do_register(self, name: str) -> None:
        register = self._node(name).stored_register()
        if register is None:
            self.said.append("none")
            return
        members = " ".join(one.replica for one in register.members)
        joining = "".join(f" joining {one.replica}" for one in register.joining)
        text = f"epoch {register.epoch} holder {register.holder} members {members}{joining} in_sync "
        self.said.append(self._named(text + " ".join(register.in_sync)))

    def _do_holds(self, name: str) -> None:
        held = sum(self._node(name).holds(start, data) for start, data in self.acknowledged)
        self.said.append(f"{held} of {len(self.acknowledged)}")


def blocks_of(text: str) -> list[tuple[str, list[str]]]:
    """The blocks of a story: a command (or a comment, which starts with #) and the lines it must answer with."""
    found = []
    for block in text.strip().split("\n\n"):
        head, _, answer = block.partition("\n----")
        found.append((head, [line for line in answer.strip().split("\n") if line]))
    return found


def essence_of(text: str) -> list[tuple[str, list[str]]]:
    """What matters of a story: not in which order nodes spoke within a block, nor who was in sync a moment before."""
    passing = (" in-sync: ", " broker-id: ", " newer-than-master: ")
    return [
        (head, sorted(line for line in lines if not any(word in line for word in passing)))
        for head, lines in blocks_of(text)
    ]


def retold(text: str) -> str:
    """The story with what really happens."""
    story, told = Story(), []
    for head, _ in blocks_of(text):
        if head.startswith("#"):
            told.append(head)
        else:
            told.append("\n".join([head, "----", *story.do(head)]))
    return "\n\n".join(told) + "\n"
